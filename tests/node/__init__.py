"""The lives of a pod, lived on the embedded cluster and on a real node."""
