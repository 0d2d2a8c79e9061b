"""The embedded cluster: one node and the part of the Kubernetes API that executor pods need, in one process.

Requests come in over HTTP (`server`) or through a `PodApi` in process (`inprocess`); both read and write one object
store, whose pods a kubelet runs. It serves laptops, demonstrations and tests: only tests, examples and the command
import it. It answers as a real API server does, text included, and refuses an unsupported request with a status that
says so. It never invents behaviour: every rule here comes from an answer of a real API server.

============  =================================================================================================
object store  `store.ObjectStore`: objects, versions, watches. The only state
kubelet       runs pods: as processes of this machine (`kubelet.process_kubelet`), or by script on a clock
              (`kubelet.scripted_kubelet`)
faults        `faults.FaultyPodApi`: a wrapper around any `PodApi` that fails as networks and servers do
window        the changes that the store keeps, so that a watch can resume; an older version is answered by 410
version       the store's global counter (`metadata.resourceVersion`), one step per change
============  =================================================================================================
"""
