// The Gloo backend: collectives on host memory over TCP, as a module that is loaded with the first
// communicator.
//
// A rank connects to the ranks at distance 1, 2, 4, ... in both directions only: rings, broadcast trees and the
// agreement need no others, so that a rank of n holds 2 log2(n) connections. Addresses are exchanged once, one
// address and a port for each of those. No exception leaves this file. Gloo writes to sockets without
// MSG_NOSIGNAL: SIGPIPE is blocked meanwhile.
#include <arpa/inet.h>
#include <errno.h>
#include <gloo/allgather.h>
#include <gloo/allreduce.h>
#include <gloo/broadcast.h>
#include <gloo/common/error.h>
#include <gloo/context.h>
#include <gloo/transport/device.h>
#include <gloo/transport/pair.h>
#include <gloo/transport/tcp/address.h>
#include <gloo/transport/tcp/device.h>
#include <gloo/types.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

extern "C" {
#include "base/error.h"
#include "base/module.h"
#include "collective/collective.h"
#include "collective/reduce.h"
}

namespace {

using gloo::transport::UnboundBuffer;
using gloo::transport::tcp::Address;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr uint8_t kAgreeSlot = 0x40; // beyond the prefixes that Gloo itself uses
constexpr milliseconds kForever = std::chrono::hours(24 * 365 * 10);

// Blocks signals in this thread, and in the threads that it starts; a SIGPIPE that came meanwhile is forgotten.
class SignalsBlocked {
  public:
    explicit SignalsBlocked(bool all) {
        sigset_t blocked;
        if (all) {
            sigfillset(&blocked);
        } else {
            sigemptyset(&blocked);
            sigaddset(&blocked, SIGPIPE);
        }
        pthread_sigmask(SIG_BLOCK, &blocked, &before_);
    }
    ~SignalsBlocked() {
        sigset_t pipe;
        sigemptyset(&pipe);
        sigaddset(&pipe, SIGPIPE);
        const timespec now = {0, 0};
        if (!sigismember(&before_, SIGPIPE)) (void)sigtimedwait(&pipe, nullptr, &now);
        pthread_sigmask(SIG_SETMASK, &before_, nullptr);
    }
    SignalsBlocked(const SignalsBlocked &) = delete;
    SignalsBlocked &operator=(const SignalsBlocked &) = delete;

  private:
    sigset_t before_;
};

// Ends a wait at its deadline. Gloo's own time-out closes every connection, which the peers could not tell from
// a death.
class Watchdog {
  public:
    Watchdog() : thread_([this] { run(); }) {
    }
    ~Watchdog() {
        {
            std::lock_guard<std::mutex> lock(mutex_);
            over_ = true;
        }
        changed_.notify_one();
        thread_.join();
    }

    // Ends a wait, and all later ones, as a deadline does.
    void interrupt(int code) {
        std::lock_guard<std::mutex> lock(mutex_);
        interruption_ = code;
        if (buffer_ != nullptr) buffer_->abortWaitRecv();
    }

    // 0, or the code of an interruption.
    int interruption() {
        std::lock_guard<std::mutex> lock(mutex_);
        return interruption_;
    }

    // False when the deadline came first, or an interruption.
    bool wait(UnboundBuffer *buffer, steady_clock::time_point deadline) {
        set(buffer, deadline);
        bool received;
        try {
            received = buffer->waitRecv(kForever);
        } catch (...) {
            set(nullptr, deadline);
            throw;
        }
        set(nullptr, deadline);
        return received;
    }

  private:
    // Deadlines only grow, so a sleeping thread need not be woken for a later one.
    void set(UnboundBuffer *buffer, steady_clock::time_point deadline) {
        std::lock_guard<std::mutex> lock(mutex_);
        buffer_ = buffer;
        deadline_ = deadline;
        if (buffer != nullptr && interruption_ != 0) buffer->abortWaitRecv();
        if (buffer != nullptr && idle_) changed_.notify_one();
    }

    void run() {
        std::unique_lock<std::mutex> lock(mutex_);
        while (!over_) {
            idle_ = buffer_ == nullptr;
            if (idle_) {
                changed_.wait(lock);
            } else if (steady_clock::now() < deadline_) {
                changed_.wait_until(lock, deadline_);
            } else {
                buffer_->abortWaitRecv();
                buffer_ = nullptr;
            }
        }
    }

    std::mutex mutex_;
    std::condition_variable changed_;
    UnboundBuffer *buffer_ = nullptr;
    steady_clock::time_point deadline_;
    bool idle_ = false, over_ = false;
    int interruption_ = 0;
    std::thread thread_;
};

// What a rank tells the others about itself: one address, and the port that listens for each neighbour in
// ascending order.
struct Announcement {
    sockaddr_storage address;
    std::vector<uint16_t> ports;
};

std::set<int> neighbours(int rank, int size) {
    std::set<int> found;
    for (int step = 1; step < size; step *= 2) {
        found.insert((rank + step) % size);
        found.insert((rank + size - step) % size);
    }
    return found;
}

uint16_t &port_of(sockaddr_storage *address) {
    return address->ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6 *>(address)->sin6_port
                                          : reinterpret_cast<sockaddr_in *>(address)->sin_port;
}

std::vector<char> encode(const Announcement &announcement) {
    const char *address = reinterpret_cast<const char *>(&announcement.address);
    const char *ports = reinterpret_cast<const char *>(announcement.ports.data());
    std::vector<char> bytes(address, address + sizeof(sockaddr_in6));
    bytes.insert(bytes.end(), ports, ports + announcement.ports.size() * sizeof(uint16_t));
    return bytes;
}

std::vector<Announcement> decode_all(const buffer &all, int size) {
    std::vector<Announcement> announcements(static_cast<size_t>(size));
    size_t at = 0;
    for (auto &announcement : announcements) {
        if (all.size - at < 4) throw std::runtime_error("the addresses of the ranks are cut short");
        const auto *length = reinterpret_cast<const unsigned char *>(all.data) + at;
        const size_t bytes =
            length[0] | length[1] << 8 | length[2] << 16 | static_cast<size_t>(length[3]) << 24;
        at += 4;
        if (bytes < sizeof(sockaddr_in6) || bytes > all.size - at)
            throw std::runtime_error("the address of a rank is cut short");
        memcpy(&announcement.address, all.data + at, sizeof(sockaddr_in6));
        announcement.ports.resize((bytes - sizeof(sockaddr_in6)) / sizeof(uint16_t));
        memcpy(announcement.ports.data(), all.data + at + sizeof(sockaddr_in6),
               announcement.ports.size() * sizeof(uint16_t));
        at += bytes;
    }
    return announcements;
}

class Mesh : public gloo::Context {
  public:
    Mesh(int own_rank, int ranks, std::shared_ptr<gloo::transport::Device> device, milliseconds timeout)
        : gloo::Context(own_rank, ranks), neighbours_(neighbours(own_rank, ranks)) {
        device_ = std::move(device);
        transportContext_ = device_->createContext(rank, size);
        // Gloo waits five times as long for a connection.
        transportContext_->setTimeout(std::max(timeout / 5, milliseconds(1)));
        setTimeout(timeout);
    }

    // Opens a listening socket for each neighbour.
    Announcement announce() {
        Announcement own = {};
        for (const int peer : neighbours_) {
            auto &pair = transportContext_->createPair(peer);
            own.address = dynamic_cast<const Address &>(pair->address()).getSockaddr();
            own.ports.push_back(port_of(&own.address));
        }
        return own;
    }

    void connect(std::vector<Announcement> all) {
        for (const int peer : neighbours_) {
            auto &theirs = all[static_cast<size_t>(peer)];
            const auto of_peer = neighbours(peer, size);
            const auto place = static_cast<size_t>(std::distance(of_peer.begin(), of_peer.find(rank)));
            if (theirs.ports.size() != of_peer.size())
                throw std::runtime_error("ranks disagree about their neighbours");
            port_of(&theirs.address) = theirs.ports[place];
            transportContext_->getPair(peer)->connect(Address(theirs.address).bytes());
        }
    }

  private:
    const std::set<int> neighbours_;
};

// One round of an agreement: what goes to the rank 2^k ahead, and what comes from the rank 2^k behind.
struct Round {
    comm_vote out, in;
    int to, from;
    std::unique_ptr<UnboundBuffer> sender, receiver;
};

void merge(comm_vote *vote, const comm_vote &other) {
    if (memcmp(&other.lowest, &vote->lowest, sizeof vote->lowest) < 0) {
        vote->lowest = other.lowest;
        vote->lowest_rank = other.lowest_rank;
    }
    if (memcmp(&other.highest, &vote->highest, sizeof vote->highest) > 0) {
        vote->highest = other.highest;
        vote->highest_rank = other.highest_rank;
    }
    if (vote->failure == 0) {
        vote->failure = other.failure;
        vote->suspect = other.suspect;
    }
}

class State {
  public:
    State(std::shared_ptr<Mesh> mesh, milliseconds timeout) : mesh_(std::move(mesh)), timeout_(timeout) {
        const int size = mesh_->size, rank = mesh_->rank;
        for (int step = 1; step < size; step *= 2) {
            auto round = std::make_unique<Round>();
            round->to = (rank + step) % size;
            round->from = (rank + size - step) % size;
            round->sender = mesh_->createUnboundBuffer(&round->out, sizeof round->out);
            round->receiver = mesh_->createUnboundBuffer(&round->in, sizeof round->in);
            rounds_.push_back(std::move(round));
        }
    }
    State(const State &) = delete;
    State &operator=(const State &) = delete;

    Mesh &mesh() {
        return *mesh_;
    }
    std::shared_ptr<Mesh> shared_mesh() {
        return mesh_;
    }
    milliseconds timeout() const {
        return timeout_;
    }

    // Dissemination: after round k a rank knows the votes of the 2^(k+1) ranks up to itself. A rank that gives
    // up sends its failure in all rounds that are left, so that every rank hears of it while the connections
    // still stand.
    void agree(comm_vote *vote, milliseconds limit) {
        const auto deadline = steady_clock::now() + limit;
        for (size_t i = 0; i < rounds_.size(); i++)
            attempt(vote, rounds_[i]->from, [&] { rounds_[i]->receiver->recv(rounds_[i]->from, slot(i)); });
        for (size_t i = 0; i < rounds_.size(); i++) {
            Round &round = *rounds_[i];
            round.out = *vote;
            attempt(vote, round.to, [&] { round.sender->send(round.to, slot(i)); });
            if (vote->failure == 0) attempt(vote, round.from, [&] { receive(round, vote, deadline); });
        }
        // Peers that have come take the message at once; a failure is given a moment to reach those that still
        // can.
        const auto patience = vote->failure == 0 ? timeout_ : milliseconds(100);
        for (auto &round : rounds_)
            attempt(vote, round->to, [&] { round->sender->waitSend(patience); });
    }

    void interrupt(int code) {
        watchdog_.interrupt(code);
    }

  private:
    static uint64_t slot(size_t round) {
        return gloo::Slot::build(kAgreeSlot, static_cast<uint32_t>(round));
    }

    template <typename Step> static void attempt(comm_vote *vote, int peer, Step step) {
        try {
            step();
        } catch (const gloo::Exception &) {
            if (vote->failure != 0) return;
            vote->failure = TY_ECOMM;
            vote->suspect = peer;
        }
    }

    void receive(Round &round, comm_vote *vote, steady_clock::time_point deadline) {
        if (watchdog_.wait(round.receiver.get(), deadline)) {
            merge(vote, round.in);
        } else {
            const int interruption = watchdog_.interruption();
            vote->failure = interruption != 0 ? interruption : TY_ETIMEOUT;
            vote->suspect = vote->failure == TY_ETIMEOUT ? round.from : mesh_->rank;
        }
    }

    std::shared_ptr<Mesh> mesh_;
    const milliseconds timeout_;
    std::vector<std::unique_ptr<Round>> rounds_;
    Watchdog watchdog_;
};

bool is_timeout(const char *what) {
    return strstr(what, "imed out") != nullptr || strstr(what, "timeout") != nullptr;
}

// Runs `body` and turns what it throws into a code and a line.
template <typename Body> int guarded(const char *what, ty_error *err, Body body) {
    try {
        const SignalsBlocked blocked(false);
        return body();
    } catch (const std::bad_alloc &) {
        return ty_fail(err, -ENOMEM, "%s: out of memory", what);
    } catch (const gloo::IoException &error) {
        if (is_timeout(error.what()))
            return ty_fail(err, TY_ETIMEOUT, "%s: a peer did not go on within the time-out", what);
        return ty_fail(err, TY_ECOMM, "%s: a peer is lost: %s", what, error.what());
    } catch (const std::exception &error) {
        return ty_fail(err, TY_ECOMM, "%s: %s", what, error.what());
    } catch (...) {
        return ty_fail(err, TY_EFAULT, "%s: an unknown exception", what);
    }
}

State *state_of(void *state) {
    return static_cast<State *>(state);
}

std::shared_ptr<gloo::transport::Device> open_device(const char *address) {
    const SignalsBlocked blocked(true); // the device's thread is no place for the program's handlers
    gloo::transport::tcp::attr attributes;
    attributes.hostname = address != nullptr ? address : "127.0.0.1";
    try {
        return gloo::transport::tcp::CreateDevice(attributes);
    } catch (const gloo::Exception &) {
        if (address != nullptr) throw;
        attributes.hostname = "::1"; // a machine without IPv4
        return gloo::transport::tcp::CreateDevice(attributes);
    }
}

struct BufferDone {
    buffer bytes = {};
    ~BufferDone() {
        buffer_done(&bytes);
    }
};

int connect(const comm_config *config, void **state, ty_error *err) {
    const milliseconds timeout(std::max<int64_t>(config->timeout / NS_PER_MS, 1));
    auto mesh = std::make_shared<Mesh>(config->rank, config->size, open_device(config->address), timeout);
    const auto own = encode(mesh->announce());
    BufferDone all;
    const int rc = config->exchange.gather(config->exchange.context, "gloo", own.data(), own.size(),
                                           config->timeout, &all.bytes, err);
    if (rc < 0) return rc;
    mesh->connect(decode_all(all.bytes, config->size));
    const SignalsBlocked blocked(true); // for the watchdog's thread
    *state = new State(std::move(mesh), timeout);
    return 0;
}

int create(const comm_config *config, void **state, ty_error *err) {
    return guarded("cannot connect the ranks through Gloo", err, [&] { return connect(config, state, err); });
}

void destroy(void *state) {
    (void)guarded("closing", nullptr, [&] {
        delete state_of(state);
        return 0;
    });
}

int agree(void *state, comm_vote *vote, nanoseconds limit, ty_error *err) {
    return guarded("agreeing on the call", err, [&] {
        state_of(state)->agree(vote,
                               limit > 0 ? milliseconds(std::max<int64_t>(limit / NS_PER_MS, 1)) : kForever);
        return 0;
    });
}

void interrupt(void *state, int failure) {
    state_of(state)->interrupt(failure);
}

// Short vectors cost by messages: halving cubes, where the number of ranks lets them use our connections. Long
// ones cost by bytes: rings.
template <typename T>
void reduce_everywhere(State &state, T *numbers, size_t n, ty_data_type type, ty_reduction reduction) {
    constexpr size_t kShort = 32 << 10;
    const int size = state.mesh().size;
    gloo::AllreduceOptions options(state.shared_mesh());
    options.setOutput(numbers, n);
    options.setReduceFunction(reduce_pair_of(type, reduction));
    options.setTimeout(state.timeout());
    if (n * sizeof(T) <= kShort && (size & (size - 1)) == 0)
        options.setAlgorithm(gloo::AllreduceOptions::Algorithm::BCUBE);
    gloo::allreduce(options);
    if (reduction == TY_MEAN) reduce_divide(numbers, n, type, size);
}

// A ring in which the part of rank r sets out at rank r + 1 and comes home complete.
template <typename T>
void reduce_to_parts(State &state, const T *input, T *output, size_t n, ty_data_type type,
                     ty_reduction reduction) {
    Mesh &mesh = state.mesh();
    const int size = mesh.size, rank = mesh.rank, next = (rank + 1) % size, previous = (rank + size - 1) % size;
    const uint64_t slot = gloo::Slot::build(kAgreeSlot + 1, 0);
    reduce_pair *const combine = reduce_pair_of(type, reduction);
    const auto part = [&](int index) { return input + static_cast<size_t>((index + 2 * size) % size) * n; };
    std::vector<T> leaving(part(rank - 1), part(rank - 1) + n), coming(n);
    auto sender = mesh.createUnboundBuffer(leaving.data(), n * sizeof(T));
    auto receiver = mesh.createUnboundBuffer(coming.data(), n * sizeof(T));
    for (int step = 2; step <= size; step++) {
        receiver->recv(previous, slot);
        sender->send(next, slot);
        receiver->waitRecv(state.timeout());
        sender->waitSend(state.timeout());
        combine(leaving.data(), coming.data(), part(rank - step), n);
    }
    std::copy(leaving.begin(), leaving.end(), output);
    if (reduction == TY_MEAN) reduce_divide(output, n, type, size);
}

// Numbers of 16 bits travel as float32.
std::vector<float> widen(const void *numbers, size_t n, ty_data_type type) {
    std::vector<float> wide(n);
    reduce_widen(wide.data(), numbers, n, type);
    return wide;
}

void reduce_by_type(State &state, void *numbers, size_t n, ty_data_type type, ty_reduction reduction) {
    switch (type) {
    case TY_FLOAT32:
        return reduce_everywhere(state, static_cast<float *>(numbers), n, type, reduction);
    case TY_FLOAT64:
        return reduce_everywhere(state, static_cast<double *>(numbers), n, type, reduction);
    case TY_INT32:
        return reduce_everywhere(state, static_cast<int32_t *>(numbers), n, type, reduction);
    case TY_INT64:
        return reduce_everywhere(state, static_cast<int64_t *>(numbers), n, type, reduction);
    case TY_INT8:
        return reduce_everywhere(state, static_cast<int8_t *>(numbers), n, type, reduction);
    case TY_UINT8:
        return reduce_everywhere(state, static_cast<uint8_t *>(numbers), n, type, reduction);
    case TY_FLOAT16:
    case TY_BFLOAT16:
        auto wide = widen(numbers, n, type);
        reduce_everywhere(state, wide.data(), n, type, reduction);
        reduce_narrow(numbers, wide.data(), n, type);
    }
}

template <typename T>
void parts(State &state, const void *input, void *output, size_t n, ty_data_type type, ty_reduction reduction) {
    reduce_to_parts(state, static_cast<const T *>(input), static_cast<T *>(output), n, type, reduction);
}

void parts_by_type(State &state, const void *input, void *output, size_t n, ty_data_type type,
                   ty_reduction reduction) {
    switch (type) {
    case TY_FLOAT32:
        return parts<float>(state, input, output, n, type, reduction);
    case TY_FLOAT64:
        return parts<double>(state, input, output, n, type, reduction);
    case TY_INT32:
        return parts<int32_t>(state, input, output, n, type, reduction);
    case TY_INT64:
        return parts<int64_t>(state, input, output, n, type, reduction);
    case TY_INT8:
        return parts<int8_t>(state, input, output, n, type, reduction);
    case TY_UINT8:
        return parts<uint8_t>(state, input, output, n, type, reduction);
    case TY_FLOAT16:
    case TY_BFLOAT16:
        const auto wide = widen(input, n * static_cast<size_t>(state.mesh().size), type);
        std::vector<float> part(n);
        reduce_to_parts(state, wide.data(), part.data(), n, type, reduction);
        reduce_narrow(output, part.data(), n, type);
    }
}

// Every part moves on by the powers of two that make up the distance to its rank (Bruck), since a rank is
// connected to those alone: part i, of all that lie here, is still to go by the digits of i that were not yet
// its turn.
void all_parts_to_all(State &state, const char *input, char *output, size_t bytes) {
    Mesh &mesh = state.mesh();
    const size_t size = static_cast<size_t>(mesh.size), rank = static_cast<size_t>(mesh.rank);
    const uint64_t slot = gloo::Slot::build(kAgreeSlot + 2, 0);
    std::vector<char> here(size * bytes), leaving(size * bytes), coming(size * bytes);
    for (size_t i = 0; i < size; i++)
        memcpy(&here[i * bytes], input + (rank + i) % size * bytes, bytes);
    for (size_t step = 1; step < size; step *= 2) {
        size_t n = 0;
        for (size_t i = 0; i < size; i++)
            if (i & step) memcpy(&leaving[n++ * bytes], &here[i * bytes], bytes);
        auto sender = mesh.createUnboundBuffer(leaving.data(), n * bytes);
        auto receiver = mesh.createUnboundBuffer(coming.data(), n * bytes);
        receiver->recv(static_cast<int>((rank + size - step) % size), slot + step);
        sender->send(static_cast<int>((rank + step) % size), slot + step);
        receiver->waitRecv(state.timeout());
        sender->waitSend(state.timeout());
        n = 0;
        for (size_t i = 0; i < size; i++)
            if (i & step) memcpy(&here[i * bytes], &coming[n++ * bytes], bytes);
    }
    for (size_t i = 0; i < size; i++)
        memcpy(output + (rank + size - i) % size * bytes, &here[i * bytes], bytes);
}

int all_reduce(void *state, void *numbers, size_t n, ty_data_type type, ty_reduction reduction, ty_error *err) {
    return guarded("all_reduce", err, [&] {
        reduce_by_type(*state_of(state), numbers, n, type, reduction);
        return 0;
    });
}

int reduce_scatter(void *state, const void *input, void *output, size_t n, ty_data_type type,
                   ty_reduction reduction, ty_error *err) {
    return guarded("reduce_scatter", err, [&] {
        parts_by_type(*state_of(state), input, output, n, type, reduction);
        return 0;
    });
}

int broadcast(void *state, void *numbers, size_t n, ty_data_type type, int root, ty_error *err) {
    return guarded("broadcast", err, [&] {
        gloo::BroadcastOptions options(state_of(state)->shared_mesh());
        options.setOutput(static_cast<char *>(numbers), n * comm_type_size(type));
        options.setRoot(root);
        options.setTimeout(state_of(state)->timeout());
        gloo::broadcast(options);
        return 0;
    });
}

int all_gather(void *state, const void *input, void *output, size_t n, ty_data_type type, ty_error *err) {
    return guarded("all_gather", err, [&] {
        Mesh &mesh = state_of(state)->mesh();
        const size_t bytes = n * comm_type_size(type);
        char *own = static_cast<char *>(output) + bytes * static_cast<size_t>(mesh.rank);
        if (own != input) memmove(own, input, bytes);
        gloo::AllgatherOptions options(state_of(state)->shared_mesh());
        options.setOutput(static_cast<char *>(output), bytes * static_cast<size_t>(mesh.size));
        options.setTimeout(state_of(state)->timeout());
        gloo::allgather(options);
        return 0;
    });
}

int all_to_all(void *state, const void *input, void *output, size_t n, ty_data_type type, ty_error *err) {
    return guarded("all_to_all", err, [&] {
        all_parts_to_all(*state_of(state), static_cast<const char *>(input), static_cast<char *>(output),
                         n * comm_type_size(type));
        return 0;
    });
}

} // namespace

extern "C" TY_API const comm_backend trainyard_gloo;
extern "C" const comm_backend trainyard_gloo = {
    base_build, "gloo",    create,     destroy,        agree,      interrupt,
    all_reduce, broadcast, all_gather, reduce_scatter, all_to_all,
};
