#!/bin/sh
# Certificates for three brokers, tokens for an operator and a client, and the access file, into a folder.
set -eu
folder=${1:?"usage: make-keys.sh FOLDER"}
if [ -e "$folder/authority.key" ]; then
  echo "$folder has keys already; remove it to make new ones" >&2
  exit 1
fi
umask 077
mkdir -p "$folder"
cd "$folder"

openssl ecparam -name prime256v1 -genkey -noout -out authority.key
openssl req -x509 -new -key authority.key -sha256 -days 3650 -subj "/CN=Braid authority" \
  -addext "basicConstraints=critical,CA:TRUE" -addext "keyUsage=critical,keyCertSign,cRLSign" -out authority.pem
for id in a b c; do
  openssl ecparam -name prime256v1 -genkey -noout -out $id.key
  openssl req -new -key $id.key -subj "/CN=$id.example" -out $id.csr
  printf '%s\n' "basicConstraints = CA:FALSE" "keyUsage = digitalSignature" \
    "extendedKeyUsage = serverAuth, clientAuth" "subjectAltName = DNS:$id.example, IP:127.0.0.1" > $id.ext
  openssl x509 -req -in $id.csr -CA authority.pem -CAkey authority.key -CAcreateserial -sha256 -days 365 \
    -extfile $id.ext -out $id.pem
  rm $id.csr $id.ext
done

for name in operator client; do
  printf 'braid_%s' "$(openssl rand -hex 32)" > $name.token
  printf 'sha256:%s' "$(openssl dgst -sha256 -r < $name.token | cut -d' ' -f1)" > $name.hash
done
{
  printf '[principals.operator]\noperate = true\ntokens = ["%s"]\n\n' "$(cat operator.hash)"
  printf '[principals.client]\npublish = "TRUE"\nsubscribe = "TRUE"\ntokens = ["%s"]\n' "$(cat client.hash)"
  for id in a b c; do
    printf '\n[principals.%s]\nlink = true\ncertificates = ["%s.example"]\n' $id $id
  done
} > access.toml
rm operator.hash client.hash
