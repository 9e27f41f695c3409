import type { Bytes } from "./noise.js";

/** What is asked of devices under local DP; made by readQuestion alone. */
export interface Question {
  readonly statistic: "visit counts";
  readonly states: number;
  readonly actions: number;
  readonly horizon: number;
  readonly version: number;
  readonly mechanism: "gaussian" | "laplace";
  readonly epsilon: number;
  readonly delta: number;
}

/** One user's episode; `states` has one more entry than `actions` and `rewards`. */
export interface Episode {
  states: number[];
  actions: number[];
  rewards: (number | null)[];
  version?: number;
  component?: number;
}

/** Throws if the question's noise does not keep what its budget promises. */
export function readQuestion(text: string): Question;
/** The noisy vector that leaves the device, once. */
export function report(question: Question, episode: Episode, bytes?: Bytes): number[];
export function sensitivity(question: Question, replace?: boolean): number;
export function deltaOf(mu: number, epsilon: number): number;
