"""What the Backend knows of its executors and does with them; the Backend owns all objects here.

The room owns the ledger, the target, kills, rolls and leases. It handles the driver's requests and questions about
executors and the reports of Allocator and LifecycleManager; it notifies the driver and whoever follows the fleet, and
sends both of them the ledger, the target and kills. It never calls the API: it has the RequestPool delete pods.
"""
