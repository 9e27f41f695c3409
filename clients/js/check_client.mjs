// Plays users against a service: node check_client.mjs ADDRESS TOKEN,TOKEN,... [late] (one token for each; late: decisions
// and outcomes come apart). Prints the receipts; see tests/service/test_javascript.py.

import { Client } from "./client.js";

const [address, tokens, late] = process.argv.slice(2);
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
  const whole = () => device.send(undefined, states, actions, [1, 0, 1], { event });
  const apart = async () => {
    for (const [step, action] of actions.entries()) {
      await device.decide(event, { step, state: states[step], action, probability: 1 });
    }
    let receipt = null;
    for (const step of actions.keys()) {
      receipt = await device.outcome(event, { step, reward: 1, next_state: states[step + 1] });
    }
    return receipt;
  };
  const sent = late === "late" ? apart : whole;
  receipts.push([await sent(), await sent()]);
}
process.stdout.write(JSON.stringify(receipts));
