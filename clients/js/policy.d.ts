/** A function like Math.random, for policies that draw. */
export type Random = () => number;

/** A published policy of any kind. */
export interface Policy {
  readonly kind: string;
  readonly version: number;
  readonly about: Record<string, unknown>;
  readonly hash: string | null;
  act(
    step: number,
    state: number | string | number[],
    random?: Random,
    component?: number,
  ): number | string | number[];
  /** Which part of a mixed policy an episode follows. */
  draw?(random: Random): number;
  /** A mixed policy for one episode: its component is drawn, and `act` needs none. */
  drawn?(random: Random): Policy;
  /** The part that was drawn. */
  readonly component?: number;
  /** Of a trial: chances of all actions; a person's own history, and a decision added to it. */
  chances?(features: number[], history?: object): number[];
  history?(): object;
  add?(history: object, f: number[], action: number, chances: number[], reward: number): void;
  /** Whether the hash is that of what the file holds. */
  verify(): Promise<boolean>;
  signer(keys: string[]): Promise<string>;
}

/** Throws an Error that says what is wrong with the file. */
export function parse(text: string): Policy;
