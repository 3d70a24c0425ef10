// Providers' own libraries for Node. `node sign.mjs <provider>` loads one and answers questions, one line of JSON each:
//
//   { what: "sign", secret, id, at, method, url, headers, body }   `at` in milliseconds, `url` whole, names in lower case
//     → { headers?, url?, body?, secret? }   what to add or change; `secret` where the receiver holds another: a public key
//   { what: "judge", secret, method, url, headers, body }
//     → { verdict: "good" }, or { refused: "why" }
//
// A secret that is a pair is written `name:secret`. A signature by a `recipe` is ours, because the library only verifies;
// all others are the library's.
import { createHash, createHmac, createPublicKey, verify, webcrypto } from "node:crypto";
import { createRequire } from "node:module";
import { createInterface } from "node:readline";

const require = createRequire(import.meta.url);
const recipe = (secret, text, encoding) => createHmac("sha256", secret).update(text).digest(encoding);
const seconds = (at) => Math.floor(at / 1000);
const path = (url) => url.slice(new URL(url).origin.length);
const isForm = (headers) => headers["content-type"].startsWith("application/x-www-form-urlencoded");

// Every value of a name, as web frameworks hand them over.
const form = (body) => {
  const all = new URLSearchParams(body);
  const values = (name) => (all.getAll(name).length > 1 ? all.getAll(name) : all.get(name));
  return Object.fromEntries([...all.keys()].map((name) => [name, values(name)]));
};

// The three headers of Standard Webhooks, under their own names or a provider's.
const standard = (prefix, id, at, signature) => ({
  headers: {
    [`${prefix}-id`]: id,
    [`${prefix}-timestamp`]: String(seconds(at)),
    [`${prefix}-signature`]: signature,
  },
});

// For providers that follow Standard Webhooks and have no signer of their own.
const standardRecipe = async () => {
  const { Webhook } = await import("standardwebhooks");
  return ({ secret, id, at, body }) =>
    standard("webhook", id, at, new Webhook(secret).sign(id, new Date(at), body));
};

const providers = {
  async braintree() {
    const { default: braintree } = await import("braintree");
    const gateway = (secret) => {
      const [publicKey, privateKey] = secret.split(":");
      const environment = braintree.Environment.Sandbox;
      return new braintree.BraintreeGateway({ environment, merchantId: "m", publicKey, privateKey });
    };
    const { Check } = braintree.WebhookNotification.Kind;
    return {
      sign: ({ secret, id }) => {
        const sample = gateway(secret).webhookTesting.sampleNotification(Check, id);
        return { body: new URLSearchParams(sample).toString() };
      },
      judge: async ({ secret, body }) => {
        const { bt_signature, bt_payload } = form(body);
        await gateway(secret).webhookNotification.parse(bt_signature, bt_payload);
      },
    };
  },

  async contentful() {
    const { signRequest, verifyRequest } = await import("@contentful/node-apps-toolkit");
    const canonical = ({ method, url, headers, body }) => ({ method, path: path(url), headers, body });
    return {
      sign: ({ secret, at, ...request }) => ({ headers: signRequest(secret, canonical(request), at) }),
      judge: ({ secret, ...request }) => verifyRequest(secret, canonical(request)),
    };
  },

  // The library verifies with the web cryptography of its runtime, and the same signs here.
  async discord() {
    const { verifyKey } = await import("discord-interactions");
    const { subtle } = webcrypto;
    const pair = async (seed) => {
      const der = Buffer.concat([Buffer.from("302e020100300506032b657004220420", "hex"), Buffer.from(seed, "hex")]);
      const key = await subtle.importKey("pkcs8", der, "Ed25519", true, ["sign"]);
      const { x } = await subtle.exportKey("jwk", key);
      return { key, shown: Buffer.from(x, "base64url").toString("hex") };
    };
    return {
      sign: async ({ secret, at, body }) => {
        const { key, shown } = await pair(secret);
        const time = String(seconds(at));
        const signature = await subtle.sign("Ed25519", key, Buffer.from(time + body));
        return {
          headers: {
            "x-signature-ed25519": Buffer.from(signature).toString("hex"),
            "x-signature-timestamp": time,
          },
          secret: shown,
        };
      },
      judge: ({ secret, headers, body }) =>
        verifyKey(body, headers["x-signature-ed25519"], headers["x-signature-timestamp"], secret),
    };
  },

  // Signatures `v1a` of Standard Webhooks, which its public libraries do not verify: by the Ed25519 of OpenSSL.
  async ed25519() {
    return {
      judge: ({ secret, headers, body }) => {
        const [id, time] = [headers["webhook-id"], headers["webhook-timestamp"]];
        if (Math.abs(seconds(Date.now()) - Number(time)) > 300) throw new Error("too old, or too new");
        const x = Buffer.from(secret.replace(/^whpk_/, ""), "base64").toString("base64url");
        const key = createPublicKey({ key: { kty: "OKP", crv: "Ed25519", x }, format: "jwk" });
        const signed = Buffer.from(`${id}.${time}.${body}`);
        const signatures = headers["webhook-signature"].split(" ").filter((one) => one.startsWith("v1a,"));
        return signatures.some((one) => verify(null, signed, key, Buffer.from(one.slice(4), "base64")));
      },
    };
  },

  async github() {
    const { sign, verify } = await import("@octokit/webhooks-methods");
    return {
      sign: async ({ secret, body }) => ({ headers: { "x-hub-signature-256": await sign(secret, body) } }),
      judge: ({ secret, headers, body }) => verify(secret, body, headers["x-hub-signature-256"]),
    };
  },

  hubspot_v1: () => hubspot("v1", "x-hubspot-signature"),
  hubspot_v2: () => hubspot("v2", "x-hubspot-signature"),
  hubspot_v3: () => hubspot("v3", "x-hubspot-signature-v3"),

  async linear() {
    const { LinearWebhookClient } = await import("@linear/sdk/webhooks");
    return {
      sign: ({ secret, body }) => ({ headers: { "linear-signature": recipe(secret, body, "hex") } }),
      judge: ({ secret, headers, body }) =>
        new LinearWebhookClient(secret).verify(Buffer.from(body), headers["linear-signature"]),
    };
  },

  async livekit() {
    const { AccessToken, WebhookReceiver } = await import("livekit-server-sdk");
    return {
      sign: async ({ secret, at, body }) => {
        const token = new AccessToken(...secret.split(":"), { ttl: seconds(at - Date.now()) + 300 });
        token.sha256 = createHash("sha256").update(body).digest("base64");
        return { headers: { authorization: await token.toJwt() } };
      },
      judge: ({ secret, headers, body }) =>
        new WebhookReceiver(...secret.split(":")).receive(body, headers.authorization),
    };
  },

  async notion() {
    const { signWebhookPayload, verifyWebhookSignature } = await import("@notionhq/client");
    return {
      sign: async ({ secret, body }) => ({
        headers: { "x-notion-signature": await signWebhookPayload({ body, verificationToken: secret }) },
      }),
      judge: ({ secret, headers, body }) =>
        verifyWebhookSignature({ body, signature: headers["x-notion-signature"], verificationToken: secret }),
    };
  },

  async openai() {
    const { default: OpenAI } = await import("openai");
    const { webhooks } = new OpenAI({ apiKey: "unused" });
    return {
      sign: await standardRecipe(),
      judge: ({ secret, headers, body }) => webhooks.verifySignature(body, headers, secret),
    };
  },

  async paddle() {
    const { Paddle } = await import("@paddle/paddle-node-sdk");
    const { webhooks } = new Paddle("unused");
    return {
      sign: ({ secret, at, body }) => {
        const time = seconds(at);
        return { headers: { "paddle-signature": `ts=${time};h1=${recipe(secret, `${time}:${body}`, "hex")}` } };
      },
      judge: ({ secret, headers, body }) => webhooks.isSignatureValid(body, secret, headers["paddle-signature"]),
    };
  },

  async razorpay() {
    const { default: Razorpay } = await import("razorpay");
    return {
      sign: ({ secret, body }) => ({ headers: { "x-razorpay-signature": recipe(secret, body, "hex") } }),
      judge: ({ secret, headers, body }) =>
        Razorpay.validateWebhookSignature(body, headers["x-razorpay-signature"], secret),
    };
  },

  async replicate() {
    const { validateWebhook } = await import("replicate");
    return {
      sign: await standardRecipe(),
      judge: ({ secret, headers, body }) =>
        validateWebhook({
          id: headers["webhook-id"],
          timestamp: headers["webhook-timestamp"],
          signature: headers["webhook-signature"],
          body,
          secret,
        }),
    };
  },

  async resend() {
    const { Resend } = await import("resend");
    const { Webhook } = await import("standardwebhooks");
    const { webhooks } = new Resend("re_unused");
    return {
      sign: ({ secret, id, at, body }) =>
        standard("svix", id, at, new Webhook(secret).sign(id, new Date(at), body)),
      judge: ({ secret, headers, body }) =>
        webhooks.verify({
          payload: body,
          headers: {
            id: headers["svix-id"],
            timestamp: headers["svix-timestamp"],
            signature: headers["svix-signature"],
          },
          webhookSecret: secret,
        }),
    };
  },

  async sanity() {
    const { encodeSignatureHeader, isValidSignature } = await import("@sanity/webhook");
    return {
      sign: async ({ secret, at, body }) => ({
        headers: { "sanity-webhook-signature": await encodeSignatureHeader(body, at, secret) },
      }),
      judge: ({ secret, headers, body }) => isValidSignature(body, headers["sanity-webhook-signature"], secret),
    };
  },

  // The library verifies by starkbank-ecdsa, and the same signs here.
  async sendgrid() {
    const { EventWebhook } = require("@sendgrid/eventwebhook");
    const inside = createRequire(require.resolve("@sendgrid/eventwebhook"));
    const { Ecdsa, PrivateKey } = inside("starkbank-ecdsa");
    const { p256 } = inside("starkbank-ecdsa/ellipticcurve/curve");
    const bigInteger = inside("big-integer");
    const names = ["x-twilio-email-event-webhook-signature", "x-twilio-email-event-webhook-timestamp"];
    return {
      sign: ({ secret, at, body }) => {
        const key = new PrivateKey(p256, bigInteger(secret, 16));
        const time = String(seconds(at));
        const signature = Ecdsa.sign(time + body, key).toBase64();
        const shown = key.publicKey().toPem().split("\n").filter((line) => !line.startsWith("-----"));
        return { headers: { [names[0]]: signature, [names[1]]: time }, secret: shown.join("") };
      },
      judge: ({ secret, headers, body }) => {
        const webhook = new EventWebhook();
        const key = webhook.convertPublicKeyToECDSA(secret);
        return webhook.verifySignature(key, body, ...names.map((name) => headers[name]));
      },
    };
  },

  async shopify() {
    await import("@shopify/shopify-api/adapters/node");
    const { shopifyApi, LogSeverity } = await import("@shopify/shopify-api");
    const { createSHA256HMAC } = await import("@shopify/shopify-api/runtime");
    const app = (secret) =>
      shopifyApi({
        apiKey: "unused",
        apiSecretKey: secret,
        apiVersion: "2026-01",
        hostName: "app.example",
        isEmbeddedApp: false,
        logger: { level: LogSeverity.Error, log: console.error },
      });
    return {
      sign: async ({ secret, body }) => ({
        headers: { "x-shopify-hmac-sha256": await createSHA256HMAC(secret, body) },
      }),
      judge: async ({ secret, method, url, headers, body }) => {
        const rawRequest = { method, url: path(url), headers };
        const verdict = await app(secret).webhooks.validate({ rawBody: body, rawRequest });
        return verdict.valid;
      },
    };
  },

  async standardwebhooks() {
    const { Webhook } = await import("standardwebhooks");
    return {
      sign: await standardRecipe(),
      judge: ({ secret, headers, body }) => new Webhook(secret).verify(body, headers),
    };
  },

  async stripe() {
    const { default: Stripe } = await import("stripe");
    const { webhooks } = new Stripe("sk_test_unused");
    return {
      sign: ({ secret, at, body }) => ({
        headers: {
          "stripe-signature": webhooks.generateTestHeaderString({
            payload: body,
            secret,
            timestamp: seconds(at),
          }),
        },
      }),
      judge: ({ secret, headers, body }) => webhooks.constructEvent(body, headers["stripe-signature"], secret),
    };
  },

  async svix() {
    const { Webhook } = await import("svix");
    return {
      sign: ({ secret, id, at, body }) =>
        standard("svix", id, at, new Webhook(secret).sign(id, new Date(at), body)),
      judge: ({ secret, headers, body }) => new Webhook(secret).verify(body, headers),
    };
  },

  async twilio() {
    const { default: twilio } = await import("twilio");
    const named = (signature) => ({ "x-twilio-signature": signature });
    return {
      sign: ({ secret, url, headers, body }) => {
        if (isForm(headers)) {
          return { headers: named(twilio.getExpectedTwilioSignature(secret, url, form(body))) };
        }
        const hashed = `${url}${url.includes("?") ? "&" : "?"}bodySHA256=${twilio.getExpectedBodyHash(body)}`;
        return { url: hashed, headers: named(twilio.getExpectedTwilioSignature(secret, hashed, {})) };
      },
      judge: ({ secret, url, headers, body }) => {
        const signature = headers["x-twilio-signature"];
        return isForm(headers)
          ? twilio.validateRequest(secret, signature, url, form(body))
          : twilio.validateRequestWithBody(secret, signature, url, body);
      },
    };
  },

  async workos() {
    const { WorkOS } = await import("@workos-inc/node");
    const { webhooks } = new WorkOS("sk_test_unused");
    return {
      sign: async ({ secret, at, body }) => {
        const signature = await webhooks.computeSignature(at, JSON.parse(body), secret);
        return { headers: { "workos-signature": `t=${at}, v1=${signature}` } };
      },
      judge: ({ secret, headers, body }) =>
        webhooks.constructEvent({
          payload: JSON.parse(body),
          sigHeader: headers["workos-signature"],
          secret,
        }),
    };
  },

  async zoom() {
    const { AwsLambdaReceiver } = await import("@zoom/rivet/marketplace");
    return {
      sign: ({ secret, at, body }) => {
        const time = String(seconds(at));
        const signature = `v0=${recipe(secret, `v0:${time}:${body}`, "hex")}`;
        return { headers: { "x-zm-request-timestamp": time, "x-zm-signature": signature } };
      },
      judge: async ({ secret, headers, body }) => {
        const receive = new AwsLambdaReceiver({ webhooksSecretToken: secret }).start();
        const answer = await receive({ headers, body, isBase64Encoded: false }, {});
        return answer.statusCode === 200;
      },
    };
  },
};

async function hubspot(version, name) {
  const { Signature } = await import("@hubspot/api-client");
  const asked = ({ secret, url, body }, timestamp) => ({ clientSecret: secret, requestBody: body, url, timestamp });
  return {
    sign: (request) => {
      const signature = Signature.getSignature(request.method, version, asked(request, request.at));
      const time = version === "v3" ? { "x-hubspot-request-timestamp": String(request.at) } : {};
      return { headers: { [name]: signature, ...time } };
    },
    judge: (request) => {
      const { method, headers } = request;
      const timestamp = Number(headers["x-hubspot-request-timestamp"]);
      const signature = headers[name];
      return Signature.isValid({ method, signatureVersion: version, signature, ...asked(request, timestamp) });
    },
  };
}

// Standard output is for answers, and some libraries talk.
const { log } = console;
console.log = console.info = console.debug = () => {};

const { sign, judge } = await providers[process.argv[2]]();
for await (const line of createInterface({ input: process.stdin })) {
  const { what, ...request } = JSON.parse(line);
  const answer = async () => {
    if (what === "sign") return sign(request);
    try {
      return (await judge(request)) === false ? { refused: "false" } : { verdict: "good" };
    } catch (error) {
      return { refused: `${error.constructor.name}: ${error.message}` };
    }
  };
  log(JSON.stringify(await answer()));
}
