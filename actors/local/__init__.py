"""The embedded cluster: one node, one process, the Kubernetes API as far as executor pods need it.

It is for laptops, demonstrations and tests. What it does, it does as a real server does it, wording included; what it
does not do, it answers with a status that says so. It must never become a place where behaviour is invented: a rule
here comes from a real API server's answer.

============  =================================================================================================
object store  `store.ObjectStore`: objects, versions, watches. The only state; everything else talks to it
door          a way in: in-process (`inprocess.InProcessPodApi`, a `PodApi`) or HTTP (`server`)
kubelet       what makes pods run: as processes of this machine (`process_kubelet`), or by script on a clock
              (`scripted_kubelet.ScriptedKubelet`)
faults        `faults.FaultyPodApi`: a wrapper around any `PodApi` that breaks what a network and a server break
window        the changes that the store remembers, so that a watch can resume; older versions are answered by 410
version       the store's global counter (`metadata.resourceVersion`), one step a change
============  =================================================================================================

Only tests, examples and the command import this package.
"""
