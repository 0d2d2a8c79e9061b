"""What a fleet shows to people: what its executors have printed, and itself as a line or a table.

It reads logs from the API in threads of its own, and everything else from the fleet's view. It changes nothing.
"""
