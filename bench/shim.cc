/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * shim.cc - the only C++ of the project: C functions around benchmark::State, and main().
 *
 * A bench_state wraps the State and notes how long each batch of iterations took, so that a case
 * can print nanoseconds an iteration next to the floor.
 */
#include "shim.h"

#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <vector>

using clock_type = std::chrono::steady_clock;

constexpr uint64_t batch_iterations = 500;
constexpr size_t batches_max = 100000; /* then only the mean of the rest is lost */

struct bench_state {
    benchmark::State *state;
    clock_type::time_point start, batch_start;
    uint64_t done;
    bool ended;                   /* skipped, or failed */
    std::vector<double> batch_ns; /* an iteration of each batch took so long */
};

static double ns_between(clock_type::time_point from, clock_type::time_point to) {
    return std::chrono::duration<double, std::nano>(to - from).count();
}

/* Filled by constructors, which run before main() in no particular order across files. */
static void (*setups[64])(void);
static unsigned setup_count;
static bool any_failed;

static benchmark::internal::Benchmark *add(const char *name, bench_fn *fn, void *arg) {
    return benchmark::RegisterBenchmark(name, [fn, arg](benchmark::State &state) {
        bench_state wrapped = {&state, {}, {}, 0, false, {}};
        wrapped.batch_ns.reserve(batches_max); /* not in the middle of a loop */
        fn(&wrapped, arg);
        if (wrapped.done == 0 && !wrapped.ended)
            bench_fail(&wrapped, "it did not begin");
    });
}

extern "C" {

void bench_add_setup(void (*setup)(void)) {
    if (setup_count < sizeof setups / sizeof setups[0])
        setups[setup_count++] = setup;
}

void bench_register(const char *name, bench_fn *fn, void *arg) {
    add(name, fn, arg)->UseRealTime();
}

void bench_register_timed(const char *name, bench_fn *fn, void *arg) {
    add(name, fn, arg)->UseManualTime();
}

void bench_register_count(const char *name, bench_fn *fn, void *arg, uint64_t iterations) {
    add(name, fn, arg)->UseRealTime()->Iterations(static_cast<int64_t>(iterations));
}

bool bench_next(bench_state *state) {
    if (state->done % batch_iterations == 0) {
        clock_type::time_point now = clock_type::now();
        if (state->done == 0)
            state->start = now;
        else if (state->batch_ns.size() < batches_max)
            state->batch_ns.push_back(ns_between(state->batch_start, now) / batch_iterations);
        state->batch_start = now;
    }
    if (!state->state->KeepRunning()) {
        if (state->batch_ns.empty() && state->done > 0) /* too few for a batch: their mean */
            state->batch_ns.push_back(ns_between(state->start, clock_type::now()) /
                                      static_cast<double>(state->done));
        return false;
    }
    state->done++;
    return true;
}

uint64_t bench_iterations(bench_state *state) {
    return static_cast<uint64_t>(state->state->iterations());
}

void bench_pause(bench_state *state) {
    state->state->PauseTiming();
}

void bench_resume(bench_state *state) {
    state->state->ResumeTiming();
}

void bench_time(bench_state *state, uint64_t ns) {
    state->state->SetIterationTime(static_cast<double>(ns) * 1e-9);
}

void bench_items(bench_state *state, uint64_t items) {
    state->state->SetItemsProcessed(static_cast<int64_t>(items));
}

void bench_bytes(bench_state *state, uint64_t bytes) {
    state->state->SetBytesProcessed(static_cast<int64_t>(bytes));
}

void bench_counter(bench_state *state, const char *name, double value) {
    state->state->counters[name] = value;
}

double bench_ns(bench_state *state) {
    if (state->batch_ns.empty())
        return 0;
    auto middle = state->batch_ns.begin() + static_cast<ptrdiff_t>(state->batch_ns.size() / 2);
    std::nth_element(state->batch_ns.begin(), middle, state->batch_ns.end());
    return *middle;
}

void bench_floor(bench_state *state, double floor_ns, double floors) {
    bench_counter(state, "floor_ns", floor_ns);
    if (floor_ns > 0)
        bench_counter(state, "x_floor", bench_ns(state) / (floors * floor_ns));
}

void bench_skip(bench_state *state, const char *why) {
    state->ended = true;
    state->state->SkipWithError(("not here: " + std::string(why)).c_str());
}

void bench_fail(bench_state *state, const char *why) {
    state->ended = any_failed = true;
    state->state->SkipWithError(("failed: " + std::string(why)).c_str());
}

} // extern "C"

int main(int argc, char **argv) {
    benchmark::Initialize(&argc, argv);
    if (benchmark::ReportUnrecognizedArguments(argc, argv))
        return 1;
    for (unsigned i = 0; i < setup_count; i++)
        setups[i]();
    benchmark::RunSpecifiedBenchmarks();
    benchmark::Shutdown();
    return any_failed;
}
