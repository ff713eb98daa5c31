"""A receiver that verifies each message by the library, and takes half of them. A GET answers with its counts."""

import os
import random
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from standardwebhooks import Webhook, WebhookVerificationError

webhook = Webhook(os.environ["SECRET"])
choice = random.Random(53)
counts = {"verified": 0, "refused": 0}


class Receiver(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        try:
            webhook.verify(body, dict(self.headers))
        except WebhookVerificationError:
            counts["refused"] += 1
            return self.answer(400, "")
        counts["verified"] += 1
        self.answer(choice.choice([200, 500]), "")

    def do_GET(self):
        self.answer(200, f"{counts['verified']} {counts['refused']}")

    def answer(self, status, text):
        self.send_response(status)
        self.send_header("content-length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_):
        pass


server = ThreadingHTTPServer(("127.0.0.1", 0), Receiver)
print(server.server_port, flush=True)
server.serve_forever()
