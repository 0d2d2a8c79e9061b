"""The processes of the process kubelet: what each container is as a process, and a program that starts and reaps them.

Requests to start or signal a process come in; its start, failure and end go out. No process outlives the connection.
"""
