{{- define "keygate.name" -}}
{{- .Chart.Name | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{- define "keygate.fullname" -}}
{{- if contains .Chart.Name .Release.Name -}}
{{- .Release.Name | trunc 52 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name .Chart.Name | trunc 52 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "keygate.selectorLabels" -}}
app.kubernetes.io/name: {{ include "keygate.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "keygate.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | quote }}
{{ include "keygate.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end -}}

{{- define "keygate.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}
{{- end -}}

{{/* A gateway that keeps what is on its volume needs a name of its own. */}}
{{- define "keygate.isStateful" -}}
{{- if or (eq .Values.state.type "embedded") .Values.persistence.enabled -}}true{{- end -}}
{{- end -}}

{{/* Keys whose text is a secret wherever they stand in the configuration. */}}
{{- define "keygate.secretKeys" -}}
password client_secret secret ticket_key authorization
{{- end -}}

{{/* Refuses secrets in the values: a ConfigMap is no place for them, nor is the history of a release. */}}
{{- define "keygate.refuseSecrets" -}}
{{- $advice := "is a secret in plain text; put it into a Kubernetes secret, name that in `env`, and give { env: NAME }" -}}
{{- if kindIs "map" .value -}}
{{- range $key, $value := .value -}}
{{- $path := printf "%s.%s" $.path $key -}}
{{- if and (kindIs "string" $value) (has $key (splitList " " (include "keygate.secretKeys" $))) -}}
{{- fail (printf "%s %s" $path $advice) -}}
{{- end -}}
{{- include "keygate.refuseSecrets" (dict "path" $path "value" $value) -}}
{{- end -}}
{{- else if kindIs "slice" .value -}}
{{- range $index, $value := .value -}}
{{- include "keygate.refuseSecrets" (dict "path" (printf "%s[%d]" $.path $index) "value" $value) -}}
{{- end -}}
{{- else if kindIs "string" .value -}}
{{- if regexMatch "^[a-z+]+://[^/@]*:[^/@]*@" .value -}}
{{- fail (printf "%s has a password in its URL, which %s" .path $advice) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Refuses values with which the gateway would not start, or would not be what its operator believes. */}}
{{- define "keygate.checkValues" -}}
{{- include "keygate.refuseSecrets" (dict "path" "config" "value" .Values.config) -}}
{{- include "keygate.refuseSecrets" (dict "path" "upstream" "value" .Values.upstream) -}}
{{- include "keygate.refuseSecrets" (dict "path" "upstreams" "value" .Values.upstreams) -}}
{{- include "keygate.refuseSecrets" (dict "path" "state.redis.settings" "value" .Values.state.redis.settings) -}}
{{- if or .Values.config.upstream .Values.config.upstreams -}}
{{- fail "config names upstreams; use the values `upstream` or `upstreams`, from which the network policies are made as well" -}}
{{- end -}}
{{- $proxied := or .Values.config.trusted_proxies (contains "proxy_protocol" (toYaml .Values.config.listen)) -}}
{{- if and (or .Values.ingress.enabled .Values.dashboard.ingress.enabled) (not $proxied) -}}
{{- fail "ingress.enabled needs config.trusted_proxies: the networks of the ingress controller's pods, such as [10.0.0.0/16]; without it, every client has the controller's address in limits and audit" -}}
{{- end -}}
{{- if and .Values.dashboard.enabled (not .Values.dashboard.host) -}}
{{- fail "dashboard.enabled needs dashboard.host: the host at which browsers reach the dashboard" -}}
{{- end -}}
{{- if and .Values.dashboard.enabled .Values.config.listen -}}
{{- fail "dashboard.enabled and config.listen: the chart makes the listeners of API and dashboard; remove one of the two" -}}
{{- end -}}
{{- if and .Values.dashboard.ingress.enabled (not .Values.dashboard.enabled) -}}
{{- fail "dashboard.ingress.enabled needs dashboard.enabled" -}}
{{- end -}}
{{- end -}}

{{/* The configuration file: what the chart decides, and over it what `config` says. */}}
{{- define "keygate.config" -}}
{{- include "keygate.checkValues" . -}}
{{- $redis := merge (dict "url" (dict "env" "KEYGATE_REDIS_URL")) .Values.state.redis.settings -}}
{{- $state := ternary (dict "embedded" (dict "path" "/var/lib/keygate/state.db")) (dict "redis" $redis) (eq .Values.state.type "embedded") -}}
{{- $timeouts := dict "lame_duck" (printf "%ds" (int .Values.lameDuckSeconds)) "drain" (printf "%ds" (int .Values.drainSeconds)) -}}
{{- $own := dict
    "listen" (list (dict "address" "0.0.0.0:8080"))
    "admin" (dict "socket" "/var/lib/keygate/admin.sock" "address" "0.0.0.0:9464")
    "state" $state
    "audit" (dict "path" "/var/lib/keygate/audit")
    "telemetry" (dict "log" "json")
    "timeouts" $timeouts -}}
{{- if .Values.upstreams -}}
{{- $_ := set $own "upstreams" .Values.upstreams -}}
{{- else -}}
{{- $_ := set $own "upstream" .Values.upstream -}}
{{- end -}}
{{- if .Values.dashboard.enabled -}}
{{- $api := dict "address" "0.0.0.0:8080" "serves" "api" -}}
{{- $_ := set $own "listen" (list $api (dict "address" "0.0.0.0:8082" "serves" "dashboard")) -}}
{{- $_ := set $own "session" (dict "origin" (printf "https://%s" .Values.dashboard.host)) -}}
{{- end -}}
{{- if .Values.routes -}}{{- $_ := set $own "routes" .Values.routes -}}{{- end -}}
{{- mergeOverwrite $own (deepCopy .Values.config) | toYaml -}}
{{- end -}}

{{- define "keygate.pod" -}}
metadata:
  labels:
    {{- include "keygate.selectorLabels" . | nindent 4 }}
    {{- with .Values.podLabels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  annotations:
    # The gateway reloads a changed file by itself; what needs a restart gets one.
    checksum/config: {{ include "keygate.config" . | sha256sum }}
    {{- with .Values.podAnnotations }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
spec:
  serviceAccountName: {{ include "keygate.fullname" . }}
  automountServiceAccountToken: false
  {{- with .Values.imagePullSecrets }}
  imagePullSecrets:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.priorityClassName }}
  priorityClassName: {{ . }}
  {{- end }}
  # Lame duck and drain, and time to write the journal.
  terminationGracePeriodSeconds: {{ add (int .Values.lameDuckSeconds) (int .Values.drainSeconds) 10 }}
  securityContext:
    runAsNonRoot: true
    runAsUser: 10001
    runAsGroup: 10001
    fsGroup: 10001
    seccompProfile: { type: RuntimeDefault }
  containers:
    - name: keygate
      image: {{ include "keygate.image" . | quote }}
      imagePullPolicy: {{ .Values.image.pullPolicy }}
      args: [serve, --config, /etc/keygate/keygate.yaml]
      securityContext:
        allowPrivilegeEscalation: false
        readOnlyRootFilesystem: true
        capabilities: { drop: [ALL] }
      ports:
        - { name: http, containerPort: 8080 }
        - { name: admin, containerPort: 9464 }
        {{- if .Values.dashboard.enabled }}
        - { name: dashboard, containerPort: 8082 }
        {{- end }}
      env:
        {{- if eq .Values.state.type "redis" }}
        - name: KEYGATE_REDIS_URL
          valueFrom:
            secretKeyRef:
              name: {{ required "state.redis.urlSecret.name is needed" .Values.state.redis.urlSecret.name }}
              key: {{ .Values.state.redis.urlSecret.key }}
        {{- end }}
        {{- with .Values.env }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      startupProbe:
        httpGet: { path: /live, port: admin }
        periodSeconds: 2
        failureThreshold: 60
      livenessProbe:
        httpGet: { path: /live, port: admin }
        periodSeconds: 10
        timeoutSeconds: 3
      readinessProbe:
        httpGet: { path: /ready, port: admin }
        # Twice within the lame duck, so that no new requests come when it ends.
        periodSeconds: 2
        failureThreshold: 1
      resources:
        {{- toYaml .Values.resources | nindent 8 }}
      volumeMounts:
        - { name: config, mountPath: /etc/keygate, readOnly: true }
        - { name: data, mountPath: /var/lib/keygate }
        {{- with .Values.volumeMounts }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
  volumes:
    - name: config
      configMap: { name: {{ include "keygate.fullname" . }} }
    {{- if not (include "keygate.isStateful" .) }}
    - name: data
      emptyDir: {}
    {{- end }}
    {{- with .Values.volumes }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  {{- with .Values.nodeSelector }}
  nodeSelector:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.tolerations }}
  tolerations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.affinity }}
  affinity:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.topologySpreadConstraints }}
  topologySpreadConstraints:
    {{- toYaml . | nindent 4 }}
  {{- end }}
{{- end -}}
