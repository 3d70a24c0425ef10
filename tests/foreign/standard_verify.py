"""The public library of Standard Webhooks for Python: judges requests as a subscriber does. Bodies come in base64."""

import base64
import json
import sys

from standardwebhooks.webhooks import Webhook, WebhookVerificationError

asked = json.load(sys.stdin)
webhook = Webhook(asked["secret"])


def verdict(request):
    try:
        webhook.verify(base64.b64decode(request["body"]), request["headers"])
        return "good"
    except WebhookVerificationError as error:
        return type(error).__name__


print(json.dumps([verdict(request) for request in asked["requests"]]))
