"""Stripe's own library for Python: signs a payload as Stripe does, and judges a request as Stripe's customers do."""

import json
import sys
import time

import stripe

asked = json.load(sys.stdin)
payload, secret, signature = asked["payload"], asked["secret"], asked.get("signature")
now = int(time.time())
digest = stripe.WebhookSignature._compute_signature(f"{now}.{payload}", secret)


def verdict():
    try:
        return {"id": stripe.Webhook.construct_event(payload, signature, secret).id}
    except stripe.SignatureVerificationError as error:
        return {"refused": type(error).__name__}


print(json.dumps({"header": f"t={now},v1={digest}", "verdict": verdict() if signature else None}))
