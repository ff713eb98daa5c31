// The certified provider `oidc-provider`, as the tests use it: on loopback, everything in memory, gone with its parent.
//
//   CLIENTS=JSON ACCOUNTS=FILE node provider.js
//
// CLIENTS is a list of clients as OpenID Connect Dynamic Client Registration names their metadata: client_id,
// client_secret, redirect_uris, post_logout_redirect_uris, token_endpoint_auth_method.
//
// ACCOUNTS is a JSON file, read anew at every sign-in: who can sign in (by this name and any password), and their claims:
//   {"ada": {"email": "ada@example.com", "email_verified": true, "name": "Ada", "groups": ["staff"]}}
//
// OPTIONS, a JSON object, may be left out:
//   claims_in_id_token   true: claims are in the ID token; otherwise only userinfo has them, as the specification says
//   signing_algorithm    of ID tokens: RS256 unless given, PS256, ES256, EdDSA
//
// It prints one line, `listening http://127.0.0.1:PORT`, which is its issuer, and ends when its standard input does.

import { generateKeyPairSync, randomBytes } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { once } from 'node:events';
import { Provider } from 'oidc-provider';

// The output is not read any more once the provider listens.
console.info = console.error;

const options = JSON.parse(process.env.OPTIONS ?? '{}');
const algorithm = options.signing_algorithm ?? 'RS256';

const clients = JSON.parse(process.env.CLIENTS).map((client) => ({
  grant_types: ['authorization_code'],
  response_types: ['code'],
  id_token_signed_response_alg: algorithm,
  ...client,
}));

function account(name) {
  const claims = JSON.parse(readFileSync(process.env.ACCOUNTS, 'utf8'))[name];
  return claims && { accountId: name, claims: () => ({ ...claims, sub: name }) };
}

function signingKey() {
  const kinds = { ES256: ['ec', { namedCurve: 'P-256' }], EdDSA: ['ed25519', {}] };
  const [kind, parameters] = kinds[algorithm] ?? ['rsa', { modulusLength: 2048 }];
  const { privateKey } = generateKeyPairSync(kind, parameters);
  return { ...privateKey.export({ format: 'jwk' }), kid: randomBytes(8).toString('hex'), alg: algorithm, use: 'sig' };
}

const server = createServer();
server.listen(0, '127.0.0.1');
await once(server, 'listening');
const issuer = `http://127.0.0.1:${server.address().port}`;

const provider = new Provider(issuer, {
  clients,
  jwks: { keys: [signingKey()] },
  enabledJWA: { idTokenSigningAlgValues: [algorithm] },
  cookies: { keys: [randomBytes(32).toString('hex')] },
  findAccount: (_, name) => account(name),
  claims: {
    openid: ['sub'],
    email: ['email', 'email_verified'],
    profile: ['name', 'preferred_username'],
    groups: ['groups'],
  },
  scopes: ['openid', 'email', 'profile', 'groups'],
  conformIdTokenClaims: !options.claims_in_id_token,
  // Algorithms that clients are registered with, so that what the metadata offer is what they can use.
  clientAuthMethods: clients.map((client) => client.token_endpoint_auth_method ?? 'client_secret_basic'),
  pkce: { required: () => true },
  features: { devInteractions: { enabled: true }, rpInitiatedLogout: { enabled: true } },
});

// The built-in pages ask for a font from elsewhere; tests contact no other host.
provider.use(async (ctx, next) => {
  await next();
  if (typeof ctx.body === 'string') ctx.body = ctx.body.replace(/@import url\([^)]*\);/, '');
});

server.on('request', provider.callback());
process.stdin.on('end', () => process.exit()).on('error', () => process.exit()).resume();
console.log(`listening ${issuer}`);
