#!/bin/sh
# Encodes the messages of this folder with protoc, which knows the .proto files of Envoy: encode.sh FOLDER...
# The folders are those that the .proto files are imported from; the crate envoy-types 0.7.7 has them below proto/.
set -eu
cd "$(dirname "$0")"

imports=""
for folder in "$@"; do imports="$imports -I$folder"; done
for text in */*.txtpb; do
    package=${text%%.*} message=${text%%/*}
    # shellcheck disable=SC2086 # One argument for each folder.
    ${PROTOC:-protoc} $imports --deterministic_output --encode="envoy.service.$package.v3.${message##*.}" \
        envoy/service/auth/v3/external_auth.proto envoy/service/ext_proc/v3/external_processor.proto \
        <"$text" >"${text%.txtpb}.binpb"
done
