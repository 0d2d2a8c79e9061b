{{/* The settings of values.yaml, and the address of this release's Service unless they have another one. */}}
{{- define "settings" -}}
{{- $own := dict "driver_address" (printf "%s:7077" .Release.Name) "executor" (dict "pod_template" "executor-pod.yaml") -}}
{{- mergeOverwrite $own .Values.settings | toToml | trim -}}
{{- end -}}
