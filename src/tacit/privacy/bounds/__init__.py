"""How far apart two users can be: bounds from public tables alone, proofs about clips."""
