// GitHub's own library for Node: signs a payload as GitHub does, and judges a signature as GitHub's customers do.
import { readFileSync } from "node:fs";
import { sign, verify } from "@octokit/webhooks-methods";

const { payload, secret, signature } = JSON.parse(readFileSync(0, "utf8"));
const verdict = signature ? await verify(secret, payload, signature) : null;
console.log(JSON.stringify({ header: await sign(secret, payload), verdict }));
