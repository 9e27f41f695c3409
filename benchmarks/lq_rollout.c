/* The yardstick of streamed linear-quadratic users: a plain loop over users and steps, in C.

   Every user is rolled out into a small buffer, and her clipped sums are added up at once, with the
   same arithmetic as the library's: x' = A x + B u + w, u = K x + noise * sign, w uniform in a ball,
   first states uniform on a sphere; then the predictable clip of tacit.lq.statistics. */

#include <math.h>

#include "generator.h"

enum { MOST = 16 }; /* coordinates of z = (x, u) */

/* A point of the unit ball, by rejection; two coordinates of each random word. */
static double ball(uint64_t s[4], int64_t n, double *out) {
  double q;
  do {
    q = 0.0;
    for (int64_t i = 0; i < n; i += 2) {
      const uint64_t word = next(s);
      out[i] = ((double)(int32_t)word + 0.5) * 0x1p-31;
      q += out[i] * out[i];
      if (i + 1 < n) {
        out[i + 1] = ((double)(int32_t)(word >> 32) + 0.5) * 0x1p-31;
        q += out[i + 1] * out[i + 1];
      }
    }
  } while (q > 1.0);
  return q;
}

/* states (H + 1, n) and actions (H, d) of one user. */
static void roll_out(uint64_t s[4], int64_t n, int64_t d, int64_t H, const double *A,
                     const double *B, const double *gains, double control_noise,
                     double noise_radius, double start_radius, double *states, double *actions) {
  double w[MOST];
  const double scale = start_radius / sqrt(ball(s, n, states));
  for (int64_t i = 0; i < n; i++) states[i] *= scale;
  for (int64_t h = 0; h < H; h++, states += n, actions += d) {
    const uint64_t signs = next(s);
    for (int64_t a = 0; a < d; a++) {
      double u = (signs >> a) & 1 ? control_noise : -control_noise;
      for (int64_t i = 0; i < n; i++) u += gains[(h * d + a) * n + i] * states[i];
      actions[a] = u;
    }
    ball(s, n, w);
    for (int64_t i = 0; i < n; i++) {
      double x = noise_radius * w[i];
      for (int64_t j = 0; j < n; j++) x += A[i * n + j] * states[j];
      for (int64_t a = 0; a < d; a++) x += B[i * d + a] * actions[a];
      states[n + i] = x;
    }
  }
}

/* Adds one user's clipped sums to gram (p, p), its upper triangle, and cross (p, n). */
static void add_user(int64_t n, int64_t d, int64_t H, const double *states, const double *actions,
                     const double *centre, const double *inputs, const double *spread, double floor,
                     double half_weight, double tau, double *gram, double *cross) {
  const int64_t p = n + d;
  double z[MOST], moved[MOST], r[MOST], g[MOST * MOST] = {0}, c[MOST * MOST] = {0};
  double left = tau;
  for (int64_t h = 0; h < H && left > 0.0; h++) {
    for (int64_t i = 0; i < n; i++) z[i] = states[h * n + i];
    for (int64_t i = 0; i < d; i++) z[n + i] = actions[h * d + i];
    double energy = 0.0, reach = 0.0;
    for (int64_t i = 0; i < p; i++) {
      double a = 0.0, b = 0.0;
      for (int64_t j = 0; j < p; j++) {
        a += inputs[i * p + j] * z[j];
        b += spread[j * p + i] * z[j];
      }
      moved[i] = a;
      energy += a * a;
      reach += b * b;
    }
    const double cap = floor + sqrt(reach);
    energy += half_weight * cap * cap;
    double largest = 0.0;
    for (int64_t i = 0; i < n; i++) {
      double a = states[(h + 1) * n + i];
      for (int64_t j = 0; j < p; j++) a -= centre[j * n + i] * z[j];
      r[i] = a;
      if (!isfinite(a)) largest = INFINITY;
      if (fabs(a) > largest) largest = fabs(a);
    }
    if (!isfinite(energy) || !isfinite(largest) || energy <= 0.0) continue;
    if (largest > 0.0) {
      double length = 0.0;
      for (int64_t i = 0; i < n; i++) {
        r[i] /= largest;
        length += r[i] * r[i];
      }
      length = sqrt(length);
      const double scale = largest * length <= cap ? largest : cap / length;
      for (int64_t i = 0; i < n; i++) r[i] *= scale;
    }
    const double weight = left < energy ? left / energy : 1.0;
    left -= weight * energy;
    for (int64_t i = 0; i < p; i++) {
      const double a = weight * moved[i];
      for (int64_t j = i; j < p; j++) g[i * p + j] += a * moved[j];
      for (int64_t j = 0; j < n; j++) c[i * n + j] += a * r[j];
    }
  }
  for (int64_t i = 0; i < p; i++) {
    for (int64_t j = i; j < p; j++) gram[i * p + j] += g[i * p + j];
    for (int64_t j = 0; j < n; j++) cross[i * n + j] += c[i * n + j];
  }
}

/* The sums of users who are given. */
void add_users(int64_t users, int64_t n, int64_t d, int64_t H, const double *states,
               const double *actions, const double *centre, const double *inputs,
               const double *spread, double floor, double half_weight, double tau, double *gram,
               double *cross) {
  for (int64_t user = 0; user < users; user++)
    add_user(n, d, H, states + user * (H + 1) * n, actions + user * H * d, centre, inputs, spread,
             floor, half_weight, tau, gram, cross);
}

/* The sums of users who are simulated one by one; states and actions are room for one of them. */
void stream(uint64_t seed, int64_t users, int64_t n, int64_t d, int64_t H, const double *A,
            const double *B, const double *gains, double control_noise, double noise_radius,
            double start_radius, double *states, double *actions, const double *centre,
            const double *inputs, const double *spread, double floor, double half_weight,
            double tau, double *gram, double *cross) {
  uint64_t s[4];
  seed_generator(s, seed);
  for (int64_t user = 0; user < users; user++) {
    roll_out(s, n, d, H, A, B, gains, control_noise, noise_radius, start_radius, states, actions);
    add_user(n, d, H, states, actions, centre, inputs, spread, floor, half_weight, tau, gram,
             cross);
  }
}
