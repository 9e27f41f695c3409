// Reads {"policy": text, "keys": [hex, ...]} from standard input, and prints by which key it is signed.
// The tests run it under Node; see tests/service/test_signatures.py.

import { parse } from "./policy.js";

let text = "";
for await (const chunk of process.stdin) text += chunk;
const { policy, keys } = JSON.parse(text);
process.stdout.write(JSON.stringify(await parse(policy).signer(keys)));
