"""Which server, and with which credential: kubeconfig, exec plugin, or the pod's own account."""
