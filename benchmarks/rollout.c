/* The yardstick of the per-episode simulator: a plain loop over users and steps, in C.

   It gets the tables of the world as the simulator has them (the outcomes of every row in falling
   order of probability, with cumulative probabilities that end in exactly 1), takes as many random
   numbers as the simulator does, and writes the same three arrays.

   Transitions and rewards do not depend on the step. */

#include "generator.h"

static double uniform(uint64_t s[4]) { return (double)(next(s) >> 11) * 0x1p-53; }

/* The first index whose cumulative probability exceeds u. */
static int64_t pick(const double *cumulative, int64_t length, double u) {
  int64_t low = 0, high = length - 1;
  if (high < 24) {
    while (low < high && u >= cumulative[low]) low++;
    return low;
  }
  while (low < high) {
    const int64_t middle = (low + high) / 2;
    if (u < cumulative[middle])
      high = middle;
    else
      low = middle + 1;
  }
  return low;
}

/* choices, (H, S, A) cumulative, is NULL for a deterministic policy, which is actions, (H, S). */
void roll_out(uint64_t seed, int64_t users, int64_t horizon, int64_t states, int64_t n_actions,
              int64_t starts, const int32_t *start_states, const double *start,
              int64_t moves, const int32_t *successors, const double *cumulative_moves,
              int64_t values, const double *cumulative_rewards, const double *reward_values,
              const int64_t *actions, const double *choices,
              int64_t *out_states, int64_t *out_actions, double *out_rewards) {
  uint64_t s[4];
  seed_generator(s, seed);
  for (int64_t user = 0; user < users; user++) {
    int64_t state = start_states[pick(start, starts, uniform(s))];
    *out_states++ = state;
    for (int64_t step = 0; step < horizon; step++) {
      const int64_t at = step * states + state;
      const int64_t action =
          choices ? pick(choices + at * n_actions, n_actions, uniform(s)) : actions[at];
      const int64_t pair = state * n_actions + action;
      const double *reward = cumulative_rewards + pair * values;
      *out_actions++ = action;
      *out_rewards++ = reward_values[reward[0] >= 1.0 ? 0 : pick(reward, values, uniform(s))];
      const double *move = cumulative_moves + pair * moves;
      const int64_t k = move[0] >= 1.0 ? 0 : pick(move, moves, uniform(s));
      state = successors[pair * moves + k];
      *out_states++ = state;
    }
  }
}
