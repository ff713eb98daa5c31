// A receiver that verifies each message by the library, and takes half of them. A GET answers with its counts.

import http from 'node:http';

import { Webhook } from 'standardwebhooks';

const webhook = new Webhook(process.env.SECRET);
let verified = 0;
let refused = 0;
let state = 53;

// The same numbers in every run (Park and Miller).
function takesIt() {
  state = (state * 48271) % 2147483647;
  return state < 1073741823;
}

const server = http.createServer(async (request, response) => {
  const parts = [];
  for await (const part of request) parts.push(part);
  if (request.method === 'GET') return response.end(`${verified} ${refused}`);
  try {
    webhook.verify(Buffer.concat(parts), request.headers);
    verified += 1;
    response.statusCode = takesIt() ? 200 : 500;
  } catch {
    refused += 1;
    response.statusCode = 400;
  }
  response.end();
});
server.listen(0, '127.0.0.1', () => console.log(server.address().port));
