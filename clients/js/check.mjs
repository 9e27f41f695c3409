// Reads a JSON list of cases from standard input and prints what this reader makes of them:
//   [{"policy": "text of a file", "asked": [[step, state, [uniform numbers], component], ...]}, ...]
// The tests run it under Node; see tests/test_clients.py.

import { parse } from "./policy.js";

let text = "";
for await (const chunk of process.stdin) text += chunk;
const answers = [];
for (const { policy, asked } of JSON.parse(text)) {
  const read = parse(policy);
  const actions = asked.map(([step, state, uniforms, component]) => {
    const left = [...uniforms];
    return read.act(step, state, () => left.shift(), component ?? undefined);
  });
  answers.push({ version: read.version, about: read.about, right: await read.verify(), actions });
}
process.stdout.write(JSON.stringify(answers));
