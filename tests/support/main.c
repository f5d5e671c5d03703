/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* main.c - main() of programs that have nothing to do before their tests. */
#include "support/test.h"

int main(void) {
    return tests_run(NULL, NULL);
}
