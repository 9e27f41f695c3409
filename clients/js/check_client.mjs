// Plays users against a service: node check_client.mjs ADDRESS TOKEN,TOKEN,... (one for each). Prints the receipts; see
// tests/service/test_javascript.py.

import { Client } from "./client.js";

const [address, tokens] = process.argv.slice(2);
const receipts = [];
for (const token of tokens.split(",")) {
  const device = new Client(address, token);
  const policy = await device.policy();
  const states = ["new"];
  const actions = [];
  for (let step = 0; step < 3; step += 1) {
    actions.push(policy.act(step, states[step]));
    states.push(step % 2 ? "busy" : "idle");
  }
  const event = crypto.randomUUID();
  const sent = () => device.send(undefined, states, actions, [1, 0, 1], { event });
  receipts.push([await sent(), await sent()]);
}
process.stdout.write(JSON.stringify(receipts));
