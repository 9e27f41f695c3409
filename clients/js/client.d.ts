import type { Policy } from "./policy.js";

/** What the service says of an episode or report. */
export interface Receipt {
  status: string;
  accepted: boolean | null;
  [fact: string]: unknown;
}

export interface LateStep {
  step: number;
  state: number | string;
  action: number | string;
  user?: string;
}

export class Refused extends Error {
  readonly code: number;
  readonly content: Record<string, unknown>;
}

export class Client {
  constructor(address: string, token: string, options?: { tries?: number; keys?: string[] | null });
  policy(): Promise<Policy>;
  task(): Promise<Record<string, unknown>>;
  send(
    user: string | undefined,
    states: (number | string)[],
    actions: (number | string)[],
    rewards: (number | null)[],
    options?: { component?: number; event?: string },
  ): Promise<Receipt>;
  decide(event: string, values: LateStep & { probability?: number }): Promise<Receipt>;
  outcome(
    event: string,
    values: { step: number; reward: number; next_state?: number | string; user?: string },
  ): Promise<Receipt>;
}
