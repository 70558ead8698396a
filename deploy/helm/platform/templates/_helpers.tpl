{{- define "platform.fullname" -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 52 | trimSuffix "-" -}}
{{- else if contains $name .Release.Name -}}
{{- .Release.Name | trunc 52 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 52 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{/* Labels that never change: (dict "root" $ "part" "mixer") */}}
{{- define "platform.selector" -}}
app.kubernetes.io/name: {{ default .root.Chart.Name .root.Values.nameOverride }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .part }}
{{- end -}}

{{- define "platform.labels" -}}
{{ include "platform.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version }}
{{- end -}}

{{/* An image: (dict "image" .Values.image "root" $) */}}
{{- define "platform.image" -}}
{{- if .image.digest -}}
{{ .image.repository }}@{{ .image.digest }}
{{- else -}}
{{ .image.repository }}:{{ .image.tag | default .root.Chart.AppVersion }}
{{- end -}}
{{- end -}}

{{- define "platform.serviceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
{{ .Values.serviceAccount.name | default (include "platform.fullname" .) }}
{{- else -}}
{{ .Values.serviceAccount.name | default "default" }}
{{- end -}}
{{- end -}}

{{/* The name by which the service's certificate knows it. */}}
{{- define "platform.host" -}}
{{ include "platform.fullname" . }}.{{ .Release.Namespace }}.svc
{{- end -}}

{{/* The name by which Racks know the bus: a service of its own, because they may reach it while the Mixer is not ready for others. */}}
{{- define "platform.busHost" -}}
{{ include "platform.fullname" . }}-bus.{{ .Release.Namespace }}.svc
{{- end -}}

{{/* A value of TOML. Whole numbers of values come as fractions of JSON. */}}
{{- define "platform.tomlValue" -}}
{{- if and (kindIs "float64" .) (eq (floor .) .) -}}
{{ printf "%.0f" . }}
{{- else -}}
{{ toJson . }}
{{- end -}}
{{- end -}}

{{/* A section of TOML with those below it: (dict "path" "a.b" "map" $map) */}}
{{- define "platform.tomlSection" -}}
{{- $path := .path -}}
{{- $values := dict -}}
{{- $sections := dict -}}
{{- range $key, $value := .map -}}
{{- if kindIs "map" $value }}{{ $_ := set $sections $key $value }}{{ else if not (kindIs "invalid" $value) }}{{ $_ := set $values $key $value }}{{ end -}}
{{- end -}}
{{- if $values -}}
[{{ $path }}]
{{ range $key, $value := $values -}}
{{ $key }} = {{ include "platform.tomlValue" $value }}
{{ end -}}
{{- end -}}
{{- range $key, $value := $sections -}}
{{ include "platform.tomlSection" (dict "path" (printf "%s.%s" $path $key) "map" $value) }}
{{- end -}}
{{- end -}}

{{/* A file of TOML: a map of sections. */}}
{{- define "platform.toml" -}}
{{- range $section, $values := . -}}
{{- if not (kindIs "map" $values) -}}
{{- fail (printf "config.%s is no section: keys of platform-mixer.toml and platform.toml are in sections" $section) -}}
{{- end -}}
{{ include "platform.tomlSection" (dict "path" $section "map" $values) }}
{{- end -}}
{{- end -}}

{{/* Keys of platform-mixer.toml that the chart sets for every Mixer, as JSON. */}}
{{- define "platform.sharedConfig" -}}
{{- $full := include "platform.fullname" . -}}
{{- $home := "/var/lib/platform-mixer" -}}
{{- $names := list -}}
{{- range $name := list $full (printf "%s-reader" $full) -}}
{{- range $end := list "" (printf ".%s" $.Release.Namespace) (printf ".%s.svc" $.Release.Namespace) (printf ".%s.svc.cluster.local" $.Release.Namespace) -}}
{{- $names = append $names (printf "%s%s" $name $end) -}}
{{- end -}}
{{- end -}}
{{- /* kubectl port-forward connects as root, for whoever may forward. */ -}}
{{- $api := dict "host" "0.0.0.0" "port" 8090 "auth" "own" "allowed_hosts" (concat $names .Values.api.allowedHosts) -}}
{{- if .Values.tls.existingSecret -}}
{{- $_ := set $api "tls_cert" "/etc/platform/tls/tls.crt" -}}
{{- $_ := set $api "tls_key" "/etc/platform/tls/tls.key" -}}
{{- if .Values.tls.clientCaKey -}}
{{- $_ := required "tls.clientSecret is missing: with tls.clientCaKey the readiness probe needs a certificate, too" .Values.tls.clientSecret -}}
{{- $_ := set $api "tls_client_ca" (printf "/etc/platform/tls/%s" .Values.tls.clientCaKey) -}}
{{- end -}}
{{- else if .Values.tls.allowInsecure -}}
{{- $_ := set $api "allow_insecure" true -}}
{{- else -}}
{{- fail "the API has no certificate: set tls.existingSecret, or tls.allowInsecure=true on a network that you trust" -}}
{{- end -}}
{{- if .Values.tokens.existingSecret }}{{ $_ := set $api "tokens_file" "/etc/platform/tokens/tokens.toml" }}{{ end -}}
{{- $insecure := not .Values.tls.existingSecret -}}
{{- $config := dict
      "logging" (dict "filename" (printf "%s/logs/mixer.log" $home))
      "store" (dict "dir" (printf "%s/data" $home))
      "api" $api -}}
{{- if .Values.postgres.enabled -}}
{{- $postgres := dict "enabled" true "host" "0.0.0.0" "port" 5432 -}}
{{- if $insecure }}{{ $_ := set $postgres "allow_insecure" true }}{{ end -}}
{{- $_ := set $config "postgres" $postgres -}}
{{- end -}}
{{- if .Values.objectStore.url -}}
{{- $storage := dict "url" .Values.objectStore.url -}}
{{- if .Values.objectStore.allowHttp }}{{ $_ := set $storage "allow_http" true }}{{ end -}}
{{- $_ := set $config "observability" (dict "embedded" (dict "storage" $storage)) -}}
{{- end -}}
{{- toJson $config -}}
{{- end -}}

{{/* The whole configuration of the Mixer that writes, as JSON. */}}
{{- define "platform.mixerConfig" -}}
{{- $config := include "platform.sharedConfig" . | fromJson -}}
{{- $_ := set $config "base" (dict "name" (include "platform.fullname" .)) -}}
{{- if .Values.otlp.enabled -}}
{{- $otlp := dict "enabled" true "host" "0.0.0.0" "grpc_port" 4317 "http_port" 4318 -}}
{{- if not .Values.tls.existingSecret }}{{ $_ := set $otlp "allow_insecure" true }}{{ end -}}
{{- $_ := set $config "otlp" $otlp -}}
{{- end -}}
{{- if eq .Values.bus.mode "external" -}}
{{- $snake := dict "server" "external" "url" (required "bus.external.url is missing" .Values.bus.external.url) -}}
{{- if .Values.bus.external.operatorKeySecret }}{{ $_ := set $snake "operator_key" "/etc/platform/bus/nats-signing.nk" }}{{ end -}}
{{- if .Values.bus.external.allowInsecure }}{{ $_ := set $snake "allow_insecure" true }}{{ end -}}
{{- $_ := set $config "snake" $snake -}}
{{- else -}}
{{- $url := .Values.bus.publicUrl | default (printf "nats://%s:4222" (include "platform.busHost" .)) -}}
{{- $names := concat (list (printf "%s-bus" (include "platform.fullname" .)) (include "platform.busHost" .)) .Values.bus.tlsNames -}}
{{- $snake := dict "server" "managed" "host" "0.0.0.0" "port" 4222 "url" $url "tls_names" $names "server_binary" "/usr/bin/nats-server" -}}
{{- if .Values.bus.tlsSecret -}}
{{- $_ := set $snake "tls_cert" "/etc/platform/bus-tls/tls.crt" -}}
{{- $_ := set $snake "tls_key" "/etc/platform/bus-tls/tls.key" -}}
{{- end -}}
{{- $_ := set $config "snake" $snake -}}
{{- end -}}
{{- mustMergeOverwrite $config (deepCopy .Values.config) | toJson -}}
{{- end -}}

{{/* That of the ones that only read: nobody else uses their bus, and they send nothing to a collector. */}}
{{- define "platform.readerConfig" -}}
{{- if not .Values.objectStore.url }}{{ fail "readers.replicas needs objectStore.url: readers answer from the bucket" }}{{ end -}}
{{- $config := include "platform.sharedConfig" . | fromJson -}}
{{- $_ := set $config "base" (dict "name" (printf "%s-reader" (include "platform.fullname" .))) -}}
{{- $_ := set $config "snake" (dict "server" "managed" "host" "127.0.0.1" "server_binary" "/usr/bin/nats-server") -}}
{{- $theirs := pick (deepCopy .Values.config) "api" "query" "postgres" "observability" "tail" "quotas" -}}
{{- if $theirs.observability }}{{ $_ := unset $theirs.observability "otlp" }}{{ end -}}
{{- $config = mustMergeOverwrite $config $theirs (deepCopy .Values.readers.config) -}}
{{- $_ := set $config.observability.embedded.storage "read_only" true -}}
{{- toJson $config -}}
{{- end -}}

{{- define "platform.podSecurity" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
# Always would make the store's folders writable for the group at each start, which the programs refuse.
fsGroupChangePolicy: OnRootMismatch
seccompProfile: {type: RuntimeDefault}
{{- end -}}

{{- define "platform.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end -}}

{{/* A probe of liveness. Where clients show certificates the kubelet has none, and `platform doctor --ready` fails where a restart would not help. */}}
{{- define "platform.alive" -}}
{{- if .Values.tls.clientCaKey -}}
tcpSocket: {port: api}
{{- else -}}
httpGet: {path: /healthz, port: api, scheme: {{ ternary "HTTPS" "HTTP" (ne .Values.tls.existingSecret "") }}}
{{- end -}}
{{- end -}}

{{/* What pods of a Mixer have in common, above their containers. */}}
{{- define "platform.mixerPod" -}}
serviceAccountName: {{ include "platform.serviceAccountName" . }}
automountServiceAccountToken: false
# Kubernetes' variables of services (PLATFORM_…) would be settings.
enableServiceLinks: false
terminationGracePeriodSeconds: {{ .Values.terminationGracePeriodSeconds }}
securityContext: {{ include "platform.podSecurity" . | nindent 2 }}
{{- with .Values.imagePullSecrets }}
imagePullSecrets: {{ toYaml . | nindent 2 }}
{{- end }}
{{- if .Values.tls.existingSecret }}
# The readiness probe asks over loopback, by the name that the certificate has.
hostAliases:
  - {ip: 127.0.0.1, hostnames: [{{ include "platform.host" . }}]}
{{- end }}
{{- with .Values.nodeSelector }}
nodeSelector: {{ toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations: {{ toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* The container of a Mixer: (dict "root" $ "part" "mixer" "config" $config "resources" …), and with "command" one that runs this command alone. */}}
{{- define "platform.mixerContainer" -}}
{{- $root := .root -}}
{{- $values := .root.Values -}}
{{- $tls := ne $values.tls.existingSecret "" -}}
name: platform-mixer
image: {{ include "platform.image" (dict "image" $values.image "root" $root) }}
imagePullPolicy: {{ $values.image.pullPolicy }}
securityContext: {{ include "platform.containerSecurity" $root | nindent 2 }}
env:
  {{- if $tls }}
  - {name: PLATFORM_CA_FILE, value: /etc/platform/tls/ca.crt}
  {{- end }}
  {{- if $values.tls.clientCaKey }}
  - {name: PLATFORM_CLIENT_CERT, value: /etc/platform/client/tls.crt}
  - {name: PLATFORM_CLIENT_KEY, value: /etc/platform/client/tls.key}
  {{- end }}
  {{- with $values.tokens.probeSecret }}
  - name: PLATFORM_TOKEN
    valueFrom: {secretKeyRef: {name: {{ . }}, key: token}}
  {{- end }}
  {{- if and (eq $values.bus.mode "external") (eq .part "mixer") }}
  {{- with $values.bus.external.tokenSecret }}
  - name: PLATFORM_SNAKE_TOKEN
    valueFrom: {secretKeyRef: {name: {{ . }}, key: token}}
  {{- end }}
  {{- end }}
  {{- with $values.objectStore.region }}
  - {name: AWS_REGION, value: {{ . | quote }}}
  {{- end }}
  {{- with $values.objectStore.endpoint }}
  - {name: AWS_ENDPOINT_URL, value: {{ . | quote }}}
  {{- end }}
  {{- with $values.extraEnv }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- with $values.objectStore.existingSecret }}
envFrom:
  - secretRef: {name: {{ . }}}
{{- end }}
{{- if .command }}
args: {{ toJson .command }}
{{- else }}
ports:
  - {name: api, containerPort: {{ .config.api.port }}}
  {{- if and (eq .part "mixer") (eq .config.snake.server "managed") }}
  - {name: bus, containerPort: {{ .config.snake.port }}}
  {{- end }}
  {{- if $values.postgres.enabled }}
  - {name: postgres, containerPort: {{ .config.postgres.port }}}
  {{- end }}
  {{- if and (eq .part "mixer") $values.otlp.enabled }}
  - {name: otlp-grpc, containerPort: {{ .config.otlp.grpc_port }}}
  - {name: otlp-http, containerPort: {{ .config.otlp.http_port }}}
  {{- end }}
startupProbe:
  {{- include "platform.alive" $root | nindent 2 }}
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: {{ $values.startupFailureThreshold }}
livenessProbe:
  {{- include "platform.alive" $root | nindent 2 }}
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: 6
# /readyz wants to know who asks; over loopback the Mixer's own user may, without a token.
readinessProbe:
  exec:
    command: [/usr/bin/platform, doctor, --mixer, --ready, --api-url, "{{ ternary "https" "http" $tls }}://{{ ternary (include "platform.host" $root) "127.0.0.1" $tls }}:{{ .config.api.port }}"]
  periodSeconds: 15
  timeoutSeconds: 12
  failureThreshold: 3
{{- end }}
resources: {{ toYaml .resources | nindent 2 }}
volumeMounts:
  - {name: data, mountPath: /var/lib/platform-mixer}
  - {name: config, mountPath: /etc/platform/platform-mixer.toml, subPath: platform-mixer.toml, readOnly: true}
  {{- if $tls }}
  - {name: tls, mountPath: /etc/platform/tls, readOnly: true}
  {{- end }}
  {{- if $values.tls.clientCaKey }}
  - {name: client, mountPath: /etc/platform/client, readOnly: true}
  {{- end }}
  {{- if $values.tokens.existingSecret }}
  - {name: tokens, mountPath: /etc/platform/tokens, readOnly: true}
  {{- end }}
  {{- if and (eq .part "mixer") $values.bus.external.operatorKeySecret }}
  - {name: bus, mountPath: /etc/platform/bus, readOnly: true}
  {{- end }}
  {{- if and (eq .part "mixer") $values.bus.tlsSecret }}
  - {name: bus-tls, mountPath: /etc/platform/bus-tls, readOnly: true}
  {{- end }}
  {{- with $values.extraVolumeMounts }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end -}}

{{/* The volumes of a Mixer, that of its data apart: (dict "root" $ "part" "mixer" "configMap" …). */}}
{{- define "platform.mixerVolumes" -}}
{{- $values := .root.Values -}}
- name: config
  configMap: {name: {{ .configMap }}}
{{- with $values.tls.existingSecret }}
- name: tls
  secret: {secretName: {{ . }}, defaultMode: 0440}
{{- end }}
{{- if $values.tls.clientCaKey }}
- name: client
  secret: {secretName: {{ $values.tls.clientSecret }}, defaultMode: 0440}
{{- end }}
{{- with $values.tokens.existingSecret }}
- name: tokens
  secret: {secretName: {{ . }}, defaultMode: 0440}
{{- end }}
{{- if eq .part "mixer" }}
{{- with $values.bus.external.operatorKeySecret }}
- name: bus
  secret: {secretName: {{ . }}, defaultMode: 0440}
{{- end }}
{{- with $values.bus.tlsSecret }}
- name: bus-tls
  secret: {secretName: {{ . }}, defaultMode: 0440}
{{- end }}
{{- end }}
{{- with $values.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end -}}
