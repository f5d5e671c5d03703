/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* iwarp_stock_test.c - memory that is lent: no more than the bound at a time, and again what came back. */
#include "support/test.h"

#include <stdlib.h>
#include <string.h>

#include "soft/iwarp/stock.h"

static struct iwarp_stock stock = {.bytes = 4096, .kept_max = 2, .lent_max = 4};

TEST(no_more_is_lent_than_the_bound) {
    void *lent[4];
    for (unsigned round = 0; round < 3; round++) {
        for (unsigned i = 0; i < 4; i++) {
            lent[i] = iwarp_stock_take(&stock);
            assert_non_null(lent[i]);
            memset(lent[i], (int)i, stock.bytes); /* of each its own */
        }
        assert_null(iwarp_stock_take(&stock));
        for (unsigned i = 0; i < 4; i++) {
            assert_int_equal(((uint8_t *)lent[i])[stock.bytes - 1], i);
            iwarp_stock_give(&stock, lent[i]);
        }
        assert_int_equal(stock.kept, 2); /* the others went back to the system */
    }
    iwarp_stock_give(&stock, NULL);
    assert_int_equal(stock.lent, 0);
    void *first = iwarp_stock_take(&stock), *second = iwarp_stock_take(&stock);
    iwarp_stock_give(&stock, first);
    assert_ptr_equal(iwarp_stock_take(&stock), first); /* which a cache may still have */
    free(first);
    free(second);
}
