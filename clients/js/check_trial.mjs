// Reads {"policy": "text of a file", "decisions": [[features, action, reward], ...]} from standard
// input and prints the chances at every decision, by the history of those before. See
// tests/trial/test_policy.py.

import { parse } from "./policy.js";

let text = "";
for await (const chunk of process.stdin) text += chunk;
const { policy, decisions } = JSON.parse(text);
const read = parse(policy);
const history = read.history();
const found = decisions.map(([features, action, reward]) => {
  const [own, all] = [read.chances(features, history), read.chances(features)];
  read.add(history, features, action, own, reward);
  return [own, all];
});
process.stdout.write(JSON.stringify({ found, right: await read.verify() }));
