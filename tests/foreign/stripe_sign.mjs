// Stripe's own library for Node: signs a payload as Stripe does, and judges a request as Stripe's customers do.
import { readFileSync } from "node:fs";
import Stripe from "stripe";

const { payload, secret, signature } = JSON.parse(readFileSync(0, "utf8"));
const { webhooks } = new Stripe("sk_test_unused");
const header = webhooks.generateTestHeaderString({ payload, secret });
const verdict = () => {
  try {
    return { id: webhooks.constructEvent(payload, signature, secret).id };
  } catch (error) {
    return { refused: error.constructor.name };
  }
};
console.log(JSON.stringify({ header, verdict: signature ? verdict() : null }));
