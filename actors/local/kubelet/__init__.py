"""Two nodes for the embedded cluster: one runs pods as processes of this machine, one only pretends, by a script.

Watch messages of the store come in, and from the launcher the starts and ends of processes. Bindings, pod statuses,
events and deletions go out to the store. A kubelet never touches a pod bound to another node, and leaves no process.
"""
