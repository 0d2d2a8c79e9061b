"""The client over HTTP: sends requests and watches to an API server and decodes the answers; never retries.

Requests come in through `PodApi`; answers, events and errors go out through its callbacks. No exception of urllib3, ssl
or socket leaves this package, and no credential gets into an error or a log line.
"""
