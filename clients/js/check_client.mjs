// Plays users against a service: node check_client.mjs ADDRESS TOKEN USERS. Prints the receipts; see
// tests/service/test_javascript.py.

import { Client } from "./client.js";

const [address, token, users] = process.argv.slice(2);
const receipts = [];
for (let user = 0; user < Number(users); user += 1) {
  const device = new Client(address, token);
  const policy = await device.policy();
  const states = ["new"];
  const actions = [];
  for (let step = 0; step < 3; step += 1) {
    actions.push(policy.act(step, states[step]));
    states.push(step % 2 ? "busy" : "idle");
  }
  const event = crypto.randomUUID();
  const sent = () => device.send(`user ${user}`, states, actions, [1, 0, 1], { event });
  receipts.push([await sent(), await sent()]);
}
process.stdout.write(JSON.stringify(receipts));
