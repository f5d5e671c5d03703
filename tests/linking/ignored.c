/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * ignored.c - every call that answers with a number, its answer ignored: see ignored.sh. A line each: "must" is
 * looked at, because something is lost, leaked or wrongly believed otherwise; "may" be ignored.
 */
#include <sluice/memory.h>
#include <sluice/sluice.h>

void ignore(sluice_node *n, sluice_loop *l, sluice_session s, sluice_listener p, sluice_msg *m,
            sluice_region *r, void *at);
void ignore(sluice_node *n, sluice_loop *l, sluice_session s, sluice_listener p, sluice_msg *m,
            sluice_region *r, void *at) {
    sluice_open(&n, NULL, NULL);               /* must */
    sluice_listen(n, "", NULL, &p, NULL);      /* must */
    sluice_dial(n, "", NULL, &s, NULL);        /* must */
    sluice_loop_open(n, &l, NULL);             /* must */
    sluice_alloc(n, 1, &m);                    /* must */
    sluice_send(s, m, NULL);                   /* must */
    sluice_request(s, m, NULL);                /* must */
    sluice_reply(s, 1, m);                     /* must */
    sluice_reply_with(s, 1, m, NULL);          /* must */
    sluice_receive_into(s, 1, r, 0);           /* must */
    sluice_region_open(n, at, 1, 0, &r, NULL); /* must */
    sluice_region_token(r, 0, 1, 0, at);       /* must */
    sluice_region_revoke(r, NULL);             /* must */
    sluice_get(s, r, 0, 1, at, 0, NULL);       /* must */
    sluice_fetch_add(s, at, 0, 1, NULL);       /* must */
    sluice_compare_swap(s, at, 0, 1, 2, NULL); /* must */
    sluice_fence(s, NULL);                     /* must */

    sluice_accept(s, NULL);           /* may: the request is gone, and nobody waits */
    sluice_refuse(s, 1, "");          /* may */
    sluice_reply_error(s, 1, 2);      /* may */
    sluice_send_copy(s, at, 1, NULL); /* may: what may get lost: nothing is left with the caller */
    sluice_send_pieces(s, at, 1, NULL);            /* may */
    sluice_put(s, r, 0, 1, at, 0, NULL);           /* may */
    sluice_put_notify(s, r, 0, 1, at, 0, 1, NULL); /* may */
    sluice_poll(l, NULL, 0, 0);          /* may: with handlers there is nothing to be told */
    sluice_region_close(r);              /* may: closing the node closes it */
    sluice_loop_close(l);                /* may */
    sluice_fd(l);                        /* may: questions */
    sluice_listener_port(p);             /* may */
    sluice_request_wanted(s, 1);         /* may */
    sluice_node_get_info(n, at);         /* may */
    sluice_session_get_info(s, at);      /* may */
    sluice_registration_get_info(n, at); /* may */
    sluice_session_move(s, l);           /* may: the session is where it was */
    sluice_session_move_worker(s, 0);    /* may */
    sluice_worker_drain(n, 0, 1);        /* may: settings that can only be wrong in the program */
    sluice_worker_set_idle(n, 0, SLUICE_IDLE_SPIN); /* may */
    sluice_loop_set_idle(l, SLUICE_IDLE_SPIN);      /* may */
}
