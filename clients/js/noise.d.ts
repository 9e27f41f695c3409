/** A source of random bytes; the machine's own by default. */
export type Bytes = (count: number) => Uint8Array;
export function systemBytes(count: number): Uint8Array;
/** Independent round(scale Z), Z standard normal. */
export function normal(scale: number, count: number, bytes?: Bytes): bigint[];
/** Independent round(scale L), L Laplace of scale 1. */
export function laplace(scale: number, count: number, bytes?: Bytes): bigint[];
