"""Providers' own libraries for Python. `python sign.py <provider>` loads one and answers questions as `sign.mjs` does, in
the same words. A signature by the `recipe` is ours, because the library only verifies; all others are the library's."""

import base64
import hashlib
import hmac
import json
import sys
from datetime import datetime, timezone


def recipe(secret, text):
    return hmac.new(secret.encode(), text.encode(), hashlib.sha256)


def moment(at):
    return datetime.fromtimestamp(at // 1000, tz=timezone.utc)


def adyen():
    from Adyen.util import generate_notification_sig, is_valid_hmac_notification

    def sign(asked):
        body = json.loads(asked["body"])
        for item in body["notificationItems"]:
            item = item["NotificationRequestItem"]
            signature = generate_notification_sig(item, asked["secret"]).decode()
            item["additionalData"] = {"hmacSignature": signature}
        return {"body": json.dumps(body)}

    def judge(asked):
        items = json.loads(asked["body"])["notificationItems"]
        return all(
            is_valid_hmac_notification({"notificationItems": [item]}, asked["secret"]) for item in items
        )

    return sign, judge


def adyen_platform():
    from Adyen.util import generate_payload_sig, is_valid_hmac_payload

    def sign(asked):
        signature = generate_payload_sig(asked["body"].encode(), asked["secret"])
        return {"headers": {"hmacsignature": signature.decode()}}

    def judge(asked):
        signature = asked["headers"]["hmacsignature"]
        return is_valid_hmac_payload(signature, asked["secret"], asked["body"].encode())

    return sign, judge


def coinbase_commerce():
    from coinbase_commerce.webhook import Webhook, WebhookSignature

    def sign(asked):
        signature = WebhookSignature._compute_signature(asked["body"], asked["secret"])
        return {"headers": {"x-cc-webhook-signature": signature}}

    def judge(asked):
        signature = asked["headers"]["x-cc-webhook-signature"]
        Webhook.construct_event(asked["body"], signature, asked["secret"])

    return sign, judge


def gocardless():
    from gocardless_pro import webhooks

    def sign(asked):
        return {"headers": {"webhook-signature": recipe(asked["secret"], asked["body"]).hexdigest()}}

    def judge(asked):
        webhooks.parse(asked["body"], asked["secret"], asked["headers"]["webhook-signature"])

    return sign, judge


def slack():
    from slack_sdk.signature import SignatureVerifier

    def sign(asked):
        time = str(asked["at"] // 1000)
        verifier = SignatureVerifier(asked["secret"])
        signature = verifier.generate_signature(timestamp=time, body=asked["body"])
        return {"headers": {"x-slack-request-timestamp": time, "x-slack-signature": signature}}

    def judge(asked):
        return SignatureVerifier(asked["secret"]).is_valid_request(asked["body"], asked["headers"])

    return sign, judge


def square():
    from square.utils.webhooks_helper import verify_signature

    name = "x-square-hmacsha256-signature"

    def sign(asked):
        digest = recipe(asked["secret"], asked["url"] + asked["body"]).digest()
        return {"headers": {name: base64.b64encode(digest).decode()}}

    def judge(asked):
        return verify_signature(
            request_body=asked["body"],
            signature_header=asked["headers"][name],
            signature_key=asked["secret"],
            notification_url=asked["url"],
        )

    return sign, judge


def stripe():
    from stripe import Webhook, WebhookSignature

    def sign(asked):
        time = asked["at"] // 1000
        signature = WebhookSignature._compute_signature(f"{time}.{asked['body']}", asked["secret"])
        return {"headers": {"stripe-signature": f"t={time},v1={signature}"}}

    def judge(asked):
        Webhook.construct_event(asked["body"], asked["headers"]["stripe-signature"], asked["secret"])

    return sign, judge


def standard(prefix, webhook):
    def sign(asked):
        at = moment(asked["at"])
        signature = webhook(asked["secret"]).sign(asked["id"], at, asked["body"])
        time = str(asked["at"] // 1000)
        headers = {"id": asked["id"], "timestamp": time, "signature": signature}
        return {"headers": {f"{prefix}-{name}": value for name, value in headers.items()}}

    def judge(asked):
        webhook(asked["secret"]).verify(asked["body"], asked["headers"])

    return sign, judge


def standardwebhooks():
    from standardwebhooks.webhooks import Webhook

    return standard("webhook", Webhook)


def svix():
    from svix.webhooks import Webhook

    return standard("svix", Webhook)


PROVIDERS = [
    adyen,
    adyen_platform,
    coinbase_commerce,
    gocardless,
    slack,
    square,
    standardwebhooks,
    stripe,
    svix,
]

provider = next(provider for provider in PROVIDERS if provider.__name__ == sys.argv[1])
sign, judge = provider()


def answer(asked):
    if asked["what"] == "sign":
        return sign(asked)
    try:
        return {"refused": "false"} if judge(asked) is False else {"verdict": "good"}
    except Exception as error:
        return {"refused": f"{type(error).__name__}: {error}"}


for line in sys.stdin:
    print(json.dumps(answer(json.loads(line))), flush=True)
