/* xoshiro256** 1.0 and splitmix64, as their authors gave them to the public domain, and draws from them: below
 * a bound, with a chance, with an exponential pause. The generators are in whole numbers alone, so that one
 * seed gives one row everywhere; nothing here is fit for secrets. */
#include "base/dice.h"

#include <math.h>

static const double LONGEST = 100.0 * 365.25 * 86400e9;

static uint64_t rotate(uint64_t value, int bits) {
    return value << bits | value >> (64 - bits);
}

void dice_seed(struct dice *dice, uint64_t seed) {
    for (int i = 0; i < 4; i++) {
        uint64_t mixed = seed += 0x9e3779b97f4a7c15;
        mixed = (mixed ^ mixed >> 30) * 0xbf58476d1ce4e5b9;
        mixed = (mixed ^ mixed >> 27) * 0x94d049bb133111eb;
        dice->state[i] = mixed ^ mixed >> 31;
    }
}

uint64_t dice_next(struct dice *dice) {
    uint64_t *s = dice->state;
    uint64_t result = rotate(s[1] * 5, 7) * 9;
    uint64_t shifted = s[1] << 17;
    s[2] ^= s[0];
    s[3] ^= s[1];
    s[1] ^= s[2];
    s[0] ^= s[3];
    s[2] ^= shifted;
    s[3] = rotate(s[3], 45);
    return result;
}

/* What lies beyond the last whole multiple of the limit is thrown again, or small numbers would be likelier. */
uint64_t dice_below(struct dice *dice, uint64_t limit) {
    uint64_t beyond = -limit % limit, number;
    do
        number = dice_next(dice);
    while (number < beyond);
    return number % limit;
}

double dice_unit(struct dice *dice) {
    return (double)((dice_next(dice) >> 11) + 1) * 0x1p-53;
}

bool dice_chance(struct dice *dice, double probability) {
    return dice_unit(dice) <= probability;
}

nanoseconds dice_exponential(struct dice *dice, double mean) {
    double time = -mean * log(dice_unit(dice));
    return time < LONGEST ? (nanoseconds)time : (nanoseconds)LONGEST;
}
