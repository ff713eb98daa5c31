#!/bin/sh
# One call of the management API, for the provisioners of main.tf: keygate.sh METHOD PATH [BODY]
#
# KEYGATE_SERVER      https://HOST:PORT of the management listener
# KEYGATE_TOKEN_FILE  file with the management token, which neither a plan nor the process list shows
# KEYGATE_CA          certificates that the server's is issued by; unset for those of the system
# ACCEPT              statuses besides 2xx that are no failure, such as "404" for what is to be removed
# CALL                idempotency key of a POST: the call that is sent again after a lost answer is made once
set -eu
method=$1 path=$2 body=${3-}

answer=$(mktemp)
trap 'rm -f "$answer"' EXIT
set -- --silent --show-error --max-time 60 --retry 5 --retry-connrefused --output "$answer" --write-out '%{http_code}'
[ -z "${KEYGATE_CA-}" ] || set -- "$@" --cacert "$KEYGATE_CA"
[ -z "$body" ] || set -- "$@" --header 'Content-Type: application/json' --data-binary "$body"
[ -z "${CALL-}" ] || [ "$method" != POST ] || set -- "$@" --header "Idempotency-Key: $CALL"
status=$(printf 'Authorization: Bearer %s\n' "$(cat "$KEYGATE_TOKEN_FILE")" |
    curl "$@" --request "$method" --header @- "$KEYGATE_SERVER/v1$path")

case " ${ACCEPT-} $status " in
    *" $status "*" $status "* | *" 2"??" ") echo "$method /v1$path: $status" ;;
    *) echo "$method /v1$path: $status $(cat "$answer")" >&2; exit 1 ;;
esac
