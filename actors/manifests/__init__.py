"""An executor's pod and volume claims as JSON, made from the pod template, its patch and the settings.

The room owns no actor and handles no message: `ExecutorManifests` builds manifests, `check_template` refuses templates
that would break the fleet. It never calls the API.
"""
