"""The processes of the process kubelet: a program that starts, signals and reaps them, and the connection to it.

Requests to start or signal a process come in; its start, failure and end go out. No process outlives the connection.
"""
