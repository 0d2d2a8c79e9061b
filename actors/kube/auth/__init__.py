"""Access to a server: its address and a credential, from a kubeconfig, an exec plugin or the pod's service account.

Reads files and runs exec plugins; sends no request. No credential gets into an error, a log line or a `repr`.
"""
