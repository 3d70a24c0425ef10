// The public library of Standard Webhooks for Node: judges requests as a subscriber does. Bodies come in base64.
import { readFileSync } from "node:fs";
import { Webhook } from "standardwebhooks";

const { secret, requests } = JSON.parse(readFileSync(0, "utf8"));
const webhook = new Webhook(secret);
const verdicts = requests.map(({ headers, body }) => {
  try {
    webhook.verify(Buffer.from(body, "base64"), headers);
    return "good";
  } catch (error) {
    return error.constructor.name;
  }
});
console.log(JSON.stringify(verdicts));
