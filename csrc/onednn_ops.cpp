#include "onednn_ops.h"

#include <dlfcn.h>
#include <omp.h>
#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "alloc.h"
#include "dnnl_abi.h"
#include "fork_lock.h"
#include "split_gemm.h"
#include "threads.h"

namespace onednn {
namespace {

using namespace dnnl;

Library lib;
Engine* engine = nullptr;
Stream* stream = nullptr;

void check(int status, const char* what) {
    if (status == success) return;
    if (status == unimplemented) throw Unsupported(std::string("oneDNN does not implement this ") + what);
    if (status == invalid_arguments) throw std::invalid_argument(std::string("oneDNN refuses the arguments of this ") + what);
    throw std::runtime_error(std::string("oneDNN failed in ") + what + ", status " + std::to_string(status));
}

// Owns one of the library's objects; `destroy` is the member of `lib` that frees it.
template <class T, int (*Library::*destroy)(T*)>
struct Owned {
    T* object = nullptr;
    Owned() = default;
    Owned(Owned&& other) noexcept : object(std::exchange(other.object, nullptr)) {}
    Owned& operator=(Owned&& other) noexcept {
        std::swap(object, other.object);
        return *this;
    }
    ~Owned() {
        if (object != nullptr) (lib.*destroy)(object);
    }
    T** operator&() { return &object; }
    operator T*() const { return object; }
};
using OwnedDesc = Owned<MemoryDesc, &Library::memory_desc_destroy>;
using OwnedMemory = Owned<Memory, &Library::memory_destroy>;
using OwnedAttr = Owned<Attr, &Library::primitive_attr_destroy>;
using OwnedPostOps = Owned<PostOps, &Library::post_ops_destroy>;
using OwnedPrimitiveDesc = Owned<PrimitiveDesc, &Library::primitive_desc_destroy>;
using OwnedPrimitive = Owned<Primitive, &Library::primitive_destroy>;

// What the library's functions call the operands of each kind.
struct Role {
    int arg, query;
    bool output;
};
constexpr Role roles[kind_count][4] = {
    {{arg_src, query_src, false}, {arg_weights, query_weights, false}, {arg_dst, query_dst, true}, {arg_bias, 0, false}},
    {{arg_src, query_src, false}, {arg_weights, query_weights, false}, {arg_dst, query_dst, true}, {arg_bias, 0, false}},
    {{arg_diff_dst, query_diff_dst, false}, {arg_weights, query_weights, false}, {arg_diff_src, query_diff_src, true}, {}},
    {{arg_src, query_src, false}, {arg_diff_dst, query_diff_dst, false}, {arg_diff_weights, query_diff_weights, true}, {arg_diff_bias, 0, true}},
};
constexpr int bias_operand = 3, out_operand = 2;
int weight_operand(int64_t kind) { return kind == conv_weight_grad ? 2 : 1; }
bool is_conv(int64_t kind) { return kind != matmul; }

// ---- memory descriptors ----

// An axis of length 1 may come with any stride; oneDNN's pattern matching wants one that fits a plain layout, and of the first axis (a
// batch of one image) one that leaves the order of the others as it is.
void settle_unit_axes(Tensor& t) {
    bool unit_stride = false;
    int64_t whole = 1;
    for (int i = 0; i < t.ndim; i++) {
        unit_stride |= t.dims[i] != 1 && t.strides[i] == 1;
        if (t.dims[i] != 1) whole = std::max(whole, t.dims[i] * t.strides[i]);
    }
    for (int i = t.ndim - 1; i >= 0; i--) {
        if (t.dims[i] != 1) continue;
        if (!unit_stride) t.strides[i] = 1, unit_stride = true;
        else if (i == 0) t.strides[i] = whole;
        else t.strides[i] = i + 1 < t.ndim ? std::max<int64_t>(1, t.dims[i + 1] * t.strides[i + 1]) : 1;
    }
}

Tensor aligned(const Tensor& t, int64_t ndim) {
    Tensor wide = t;
    wide.ndim = ndim;
    int64_t missing = ndim - t.ndim;
    if (missing < 0) throw std::invalid_argument("an operand has more dimensions than the output");
    for (int i = 0; i < ndim; i++) {
        wide.dims[i] = i < missing ? 1 : t.dims[i - missing];
        wide.strides[i] = i < missing ? 0 : t.strides[i - missing];
    }
    return wide;
}

// A stride of 0 is a broadcast, which oneDNN writes as an axis of length 1.
Tensor broadcast_axes(Tensor t, int last_axes_kept) {
    for (int i = 0; i < t.ndim - last_axes_kept; i++)
        if (t.strides[i] == 0) t.dims[i] = 1;
    return t;
}

// Weights (O, I/G, window...) of G groups become (G, O/G, I/G, window...).
Tensor grouped(const Tensor& w, int64_t groups) {
    Tensor g = w;
    g.ndim = w.ndim + 1;
    g.dims[0] = groups;
    g.dims[1] = w.dims[0] / groups;
    g.strides[0] = w.strides[0] * g.dims[1];
    for (int i = 0; i < w.ndim; i++) g.strides[i + 1] = w.strides[i];
    for (int i = 1; i < w.ndim; i++) g.dims[i + 1] = w.dims[i];
    return g;
}

// oneDNN's kernels read a bias, or a vector that a post-op takes, element after element, whatever strides they were told.
Tensor side_by_side(Tensor t) {
    int long_axes = 0;
    for (int i = 0; i < t.ndim; i++) long_axes += t.dims[i] != 1;
    for (int i = 0; i < t.ndim && long_axes == 1; i++)
        if (t.dims[i] != 1) t.strides[i] = 1;
    return t;
}

// The operand as oneDNN counts its axes.
Tensor as_counted(const Spec& spec, int operand) {
    const Tensor& t = spec.operands[operand];
    if (spec.kind == matmul) {
        int64_t ndim = spec.operands[out_operand].ndim;
        if (operand == out_operand) return t;
        return broadcast_axes(aligned(t, ndim), operand == bias_operand ? 0 : 2);
    }
    if (is_conv(spec.kind) && operand == weight_operand(spec.kind) && spec.groups > 1) return grouped(t, spec.groups);
    return t;
}

OwnedDesc strided_desc(Tensor t) {
    settle_unit_axes(t);
    OwnedDesc desc;
    check(lib.memory_desc_create_with_strides(&desc, (int)t.ndim, t.dims, (int)t.dtype, t.strides), "memory layout");
    return desc;
}

OwnedDesc any_desc(const Tensor& t) {
    OwnedDesc desc;
    check(lib.memory_desc_create_with_tag(&desc, (int)t.ndim, t.dims, (int)t.dtype, tag_any), "memory layout");
    return desc;
}

OwnedDesc clone(const MemoryDesc* desc) {
    OwnedDesc copy;
    check(lib.memory_desc_clone(&copy, desc), "memory layout");
    return copy;
}

OwnedMemory memory_of(const MemoryDesc* desc) {
    OwnedMemory memory;
    check(lib.memory_create(&memory, desc, engine, nullptr), "memory");
    return memory;
}

size_t padded(size_t bytes) { return (bytes + 127) & ~size_t(63); }


}  // namespace

// ---- operations ----

struct Slot {
    int arg;
    bool read, written;
    OwnedMemory memory;             // what the main primitive sees
    OwnedMemory plain;              // the caller's layout, when it differs
    OwnedPrimitive reorder_in, reorder_out;
    size_t offset = 0;              // of the reordered copy in the arena
    bool constant = false;          // it is reordered once, and lies in `packed` by the address that it came from
    size_t bytes = 0, plain_bytes = 0;
    std::unordered_map<const void*, std::unique_ptr<CachedMemory>> packed{};
};

void (*packed_told)(const void*, size_t) = nullptr;

// A matrix product as split_gemm takes it: `c` with its columns side by side, the operands' batch axes written out.
struct SplitProduct {
    bool possible = false;
    split_gemm::Sizes sizes{};
    int64_t count = 1;        // products in the batch
    int operands[3] = {};     // a, b and c among the caller's, in this order
    Tensor tensors[3];
    split_gemm::PostOp posts[split_gemm::most_posts];
    Tensor post_tensors[split_gemm::most_posts];
    int post_operands[split_gemm::most_posts] = {};
};

struct Op {
    Spec spec;
    SplitProduct split;
    ForkLock lock;
    int threads = 0;
    std::string implementation;
    OwnedPrimitive primitive;
    std::vector<Slot> slots;
    OwnedMemory scratchpad;
    size_t scratchpad_offset = 0, arena_bytes = 0;
    std::vector<ExecArg> args;

    void build();
    void run(void* const* operands);

    void plan_split();

   private:
    int wanted_threads() const;
    void run_split(void* const* operands);
    OwnedPrimitiveDesc describe(const OwnedDesc* descs, const Attr* attr) const;
    OwnedAttr attributes() const;
    OwnedPrimitiveDesc choose();
    void add_slot(const PrimitiveDesc* chosen, int operand);
    void add_post_slot(size_t i);
    void place(Slot slot, const MemoryDesc* plain, const MemoryDesc* inner);
    char* pack(Slot& slot, void* operand);
};

OwnedAttr Op::attributes() const {
    OwnedAttr attr;
    OwnedPostOps post;
    check(lib.primitive_attr_create(&attr), "attributes");
    check(lib.primitive_attr_set_scratchpad_mode(attr, scratchpad_user), "attributes");
    check(lib.post_ops_create(&post), "post-ops");
    for (const PostOp& p : spec.post) {
        if (p.has_tensor) {
            int64_t ndim = spec.operands[out_operand].ndim;
            OwnedDesc desc = strided_desc(side_by_side(broadcast_axes(aligned(p.tensor, ndim), 0)));
            check(lib.post_ops_append_binary(post, (int)p.algorithm, desc), "binary post-op");
        } else {
            check(lib.post_ops_append_eltwise(post, (int)p.algorithm, p.alpha, p.beta), "elementwise post-op");
        }
    }
    check(lib.primitive_attr_set_post_ops(attr, post), "post-ops");
    return attr;
}

OwnedPrimitiveDesc Op::describe(const OwnedDesc* d, const Attr* attr) const {
    OwnedPrimitiveDesc made;
    const MemoryDesc* bias = spec.operands.size() > bias_operand ? d[bias_operand].object : nullptr;
    if (spec.kind == matmul) {
        check(lib.matmul_primitive_desc_create(&made, engine, d[0], d[1], bias, d[2], attr), "matmul");
        return made;
    }
    int64_t stride[max_dims], dilation[max_dims], left[max_dims], right[max_dims];
    for (size_t i = 0; i < spec.windows.size(); i++) {
        const Window& w = spec.windows[i];
        stride[i] = w.stride, dilation[i] = w.dilation - 1, left[i] = w.pad_left, right[i] = w.pad_right;
    }
    const MemoryDesc* x = spec.kind == conv_input_grad ? d[2] : d[0];
    const MemoryDesc* w = d[weight_operand(spec.kind)];
    const MemoryDesc* y = spec.kind == conv_forward ? d[2] : spec.kind == conv_input_grad ? d[0] : d[1];
    OwnedPrimitiveDesc forward;
    int prop = spec.kind == conv_forward ? forward_inference : forward_training;
    check(lib.convolution_forward_primitive_desc_create(&forward, engine, prop, convolution_direct, x, w, bias, y, stride,
                                                        dilation, left, right, spec.kind == conv_forward ? attr : nullptr),
          "convolution");
    if (spec.kind == conv_forward) return forward;
    if (spec.kind == conv_input_grad)
        check(lib.convolution_backward_data_primitive_desc_create(&made, engine, convolution_direct, x, w, y, stride, dilation,
                                                                  left, right, forward, attr),
              "convolution gradient by input");
    else
        check(lib.convolution_backward_weights_primitive_desc_create(&made, engine, convolution_direct, x, w, bias, y, stride,
                                                                     dilation, left, right, forward, attr),
              "convolution gradient by weight");
    return made;
}

std::string implementation_of(const PrimitiveDesc* desc) {
    const char* name = nullptr;
    lib.primitive_desc_query(desc, query_implementation, 0, &name);
    return name ? name : "";
}

// oneDNN has no word for a product whose two operands repeat along the same axis of the batch.
void refuse_repetition(const Spec& spec) {
    const Tensor &out = spec.operands[out_operand], a = as_counted(spec, 0), b = as_counted(spec, 1);
    for (int i = 0; i < out.ndim - 2; i++)
        if (out.dims[i] != 1 && a.dims[i] == 1 && b.dims[i] == 1) check(unimplemented, "repetition of a matmul");
}

// First with the layouts as asked; where oneDNN then has only its reference loops, with its own choice of weight layout, then
// of every layout: the operation reorders inside, which is cheap beside reference loops.
OwnedPrimitiveDesc Op::choose() {
    if (spec.kind == matmul) refuse_repetition(spec);
    OwnedAttr attr = attributes();
    OwnedPrimitiveDesc first;
    std::exception_ptr refusal;
    int main_operands = std::min<int>(3, (int)spec.operands.size());
    for (int freedom = 0; freedom < 3; freedom++) {
        OwnedDesc descs[4];
        for (int i = 0; i < (int)spec.operands.size(); i++) {
            Tensor t = as_counted(spec, i);
            bool released = freedom == 2 || (freedom == 1 && i == weight_operand(spec.kind));
            if (i < main_operands && (t.layout != given || released)) descs[i] = any_desc(t);
            else descs[i] = strided_desc(i == bias_operand ? side_by_side(t) : t);
        }
        try {
            OwnedPrimitiveDesc made = describe(descs, attr);
            implementation = implementation_of(made);
            if (implementation.rfind("ref", 0) != 0) return made;
            if (first.object == nullptr) first = std::move(made);
        } catch (const Unsupported&) {
            refusal = std::current_exception();
        }
    }
    if (first.object == nullptr) std::rethrow_exception(refusal);
    implementation = implementation_of(first);
    return first;
}

void Op::add_slot(const PrimitiveDesc* chosen, int operand) {
    const Role& role = roles[spec.kind][operand];
    Tensor t = as_counted(spec, operand);
    const MemoryDesc* asked = role.query ? lib.primitive_desc_query_md(chosen, role.query, 0) : nullptr;
    OwnedDesc inner = asked ? clone(asked) : strided_desc(operand == bias_operand ? side_by_side(t) : t);
    Slot slot{role.arg, !role.output, role.output};
    slot.constant = t.layout == constant;
    place(std::move(slot), strided_desc(t), inner);
}

// The tensor of the i-th post-op.
void Op::add_post_slot(size_t i) {
    Tensor t = broadcast_axes(aligned(spec.post[i].tensor, spec.operands[out_operand].ndim), 0);
    place({(int)(arg_post_op_base * (i + 1)) | arg_src_1, true, false}, strided_desc(t), strided_desc(side_by_side(t)));
}

// Adds a slot; where the caller's layout `plain` is not the kernel's `inner`, one that is reordered in each run.
void Op::place(Slot slot, const MemoryDesc* plain, const MemoryDesc* inner) {
    slot.memory = memory_of(inner);
    if (!lib.memory_desc_equal(plain, inner)) {
        slot.plain = memory_of(plain);
        slot.bytes = padded(lib.memory_desc_get_size(inner)), slot.plain_bytes = lib.memory_desc_get_size(plain);
        slot.offset = arena_bytes;
        if (!slot.constant) arena_bytes += slot.bytes;
        OwnedPrimitiveDesc there, back;
        if (slot.read) {
            check(lib.reorder_primitive_desc_create(&there, plain, engine, inner, engine, nullptr), "reorder");
            check(lib.primitive_create(&slot.reorder_in, there), "reorder");
        }
        if (slot.written) {
            check(lib.reorder_primitive_desc_create(&back, inner, engine, plain, engine, nullptr), "reorder");
            check(lib.primitive_create(&slot.reorder_out, back), "reorder");
        }
    }
    slots.push_back(std::move(slot));
}

// The thread count that oneDNN finds, for as long as this lives.
struct ThreadScope {
    explicit ThreadScope(int threads) { set(threads); }
    ~ThreadScope() { set(thread_count()); }
    static void set(int threads) {
        if (omp_get_max_threads() != threads) omp_set_num_threads(threads);
    }
};

// Waking a second thread takes about as long as these many multiply-adds.
constexpr int64_t small_work = 1 << 18;

int Op::wanted_threads() const {
    const Tensor &output = spec.operands[spec.kind == matmul || spec.kind == conv_forward ? 2 : spec.kind == conv_input_grad ? 0 : 1];
    const Tensor& weight = spec.operands[weight_operand(spec.kind)];
    int64_t work = spec.kind == matmul ? spec.operands[0].dims[spec.operands[0].ndim - 1] : 1;
    for (int i = 0; i < output.ndim; i++) work *= output.dims[i];
    for (int i = 1; i < weight.ndim && is_conv(spec.kind); i++) work *= weight.dims[i];
    return work < small_work ? 1 : thread_count();
}

// Also called again when the thread count has changed: oneDNN divides the work when it builds.
void Op::build() {
    threads = wanted_threads();
    ThreadScope scope(threads);
    slots.clear();
    args.clear();
    arena_bytes = 0;
    primitive = {};
    scratchpad = {};
    OwnedPrimitiveDesc chosen = choose();
    check(lib.primitive_create(&primitive, chosen), "operation");
    for (int i = 0; i < (int)spec.operands.size(); i++) add_slot(chosen, i);
    for (size_t i = 0; i < spec.post.size(); i++)
        if (spec.post[i].has_tensor) add_post_slot(i);
    const MemoryDesc* scratch = lib.primitive_desc_query_md(chosen, query_scratchpad, 0);
    if (scratch != nullptr && lib.memory_desc_get_size(scratch) > 0) {
        scratchpad = memory_of(scratch);
        scratchpad_offset = arena_bytes;
        arena_bytes += padded(lib.memory_desc_get_size(scratch));
    }
    for (Slot& slot : slots) args.push_back({slot.arg, slot.memory});
    if (scratchpad.object != nullptr) args.push_back({arg_scratchpad, scratchpad});
}

// ---- the same product in parts of bf16 ----

// Whether splitting pays: not for small products, nor where each value that is split enters few multiplications (measured).
bool worth_splitting(int64_t m, int64_t n, int64_t k) { return k >= 32 && m * n * k >= 1 << 20 && m * n >= 56 * (m + n); }

std::atomic<int> split_products{split_gemm::available() ? 6 : 0};

bool split_post(int64_t algorithm, split_gemm::Post& kind) {
#define FL_KNOWN(name, algorithm, ...) {algorithm, split_gemm::Post::name},
    static const std::unordered_map<int64_t, split_gemm::Post> known = {FL_POST_OPS(FL_KNOWN)};
#undef FL_KNOWN
    auto found = known.find(algorithm);
    if (found != known.end()) kind = found->second;
    return found != known.end();
}

// An operand over the batch and the two axes of the output, 0 being the stride of what repeats.
Tensor spread(const Tensor& t, const Tensor& out, int last_axes_kept) {
    Tensor wide = aligned(t, out.ndim);
    for (int i = 0; i < out.ndim - last_axes_kept; i++)
        if (wide.dims[i] == 1) wide.strides[i] = 0;
    return wide;
}

Tensor transposed(Tensor t) {
    std::swap(t.dims[t.ndim - 1], t.dims[t.ndim - 2]);
    std::swap(t.strides[t.ndim - 1], t.strides[t.ndim - 2]);
    return t;
}

bool lies_in_lines(const Tensor& t) { return t.strides[t.ndim - 1] == 1 || t.strides[t.ndim - 2] == 1; }

// Sets `split.possible` and how the operands are read. A bias is the first of the post-ops.
void Op::plan_split() {
    split = {};
    const int64_t ndim = spec.operands.size() > 2 ? spec.operands[2].ndim : 0;
    if (spec.kind != matmul || ndim < 2) return;
    for (const Tensor& t : spec.operands)
        if (t.dtype != f32 || t.layout != given) return;
    const Tensor& out = spec.operands[out_operand];
    Tensor a = spread(spec.operands[0], out, 2), b = spread(spec.operands[1], out, 2), c = out;
    std::vector<std::pair<split_gemm::PostOp, Tensor>> posts;
    if (spec.operands.size() > bias_operand) posts.push_back({{split_gemm::Post::add}, spread(spec.operands[bias_operand], out, 0)});
    for (const PostOp& p : spec.post) {
        split_gemm::PostOp made{split_gemm::Post::add, p.alpha, p.beta};
        if (!split_post(p.algorithm, made.kind) || (p.has_tensor && p.tensor.dtype != f32)) return;
        posts.push_back({made, p.has_tensor ? spread(p.tensor, out, 0) : Tensor{}});
    }
    const bool turn = c.strides[ndim - 1] != 1;
    if (turn) {
        std::swap(a, b);
        a = transposed(a), b = transposed(b), c = transposed(c);
        for (auto& [made, tensor] : posts)
            if (tensor.ndim > 0) tensor = transposed(tensor);
    }
    const int64_t m = c.dims[ndim - 2], n = c.dims[ndim - 1], k = a.dims[ndim - 1];
    if (c.strides[ndim - 1] != 1 || !lies_in_lines(a) || !lies_in_lines(b) || posts.size() > split_gemm::most_posts) return;
    if (!worth_splitting(m, n, k)) return;
    split.sizes = {m, n, k, (int)posts.size()};
    split.tensors[0] = a, split.tensors[1] = b, split.tensors[2] = c;
    split.operands[0] = turn ? 1 : 0, split.operands[1] = turn ? 0 : 1, split.operands[2] = out_operand;
    for (int64_t i = 0; i + 2 < ndim; i++) split.count *= c.dims[i];
    int next = 3;  // among the caller's operands: bias, then the post-ops' tensors
    for (size_t i = 0; i < posts.size(); i++) {
        split.posts[i] = posts[i].first, split.post_tensors[i] = posts[i].second;
        split.post_operands[i] = posts[i].second.ndim > 0 ? next++ : -1;
    }
    split.possible = true;
}

struct SplitCall {
    const SplitProduct& split;
    void* const* operands;
};

// The i-th product of the batch; fills in `posts`.
split_gemm::Product split_product(void* context, int64_t i, split_gemm::PostOp* posts) {
    const SplitCall& call = *(const SplitCall*)context;
    const SplitProduct& split = call.split;
    const Tensor& c = split.tensors[2];
    auto at = [&](const Tensor& t, int operand) {
        float* data = (float*)call.operands[operand];
        int64_t rest = i;
        for (int64_t axis = c.ndim - 3; axis >= 0; axis--) data += rest % c.dims[axis] * t.strides[axis], rest /= c.dims[axis];
        return data;
    };
    auto row = [&](const Tensor& t) { return t.strides[t.ndim - 2]; };
    auto column = [&](const Tensor& t) { return t.strides[t.ndim - 1]; };
    for (int p = 0; p < split.sizes.posts; p++) {
        posts[p] = split.posts[p];
        const Tensor& t = split.post_tensors[p];
        if (split.post_operands[p] < 0) continue;
        posts[p].data = at(t, split.post_operands[p]), posts[p].row = row(t), posts[p].column = column(t);
    }
    const Tensor &a = split.tensors[0], &b = split.tensors[1];
    return {at(a, split.operands[0]), at(b, split.operands[1]), at(c, split.operands[2]), row(a), column(a), row(b), column(b), row(c), posts};
}

void Op::run_split(void* const* operands) {
    SplitCall call{split, operands};
    split_gemm::Sizes sizes = split.sizes;
    sizes.products = split_products;
    split_gemm::run(sizes, split.count, split_product, &call, threads);
}

// The constant as the kernel wants it.
char* Op::pack(Slot& slot, void* operand) {
    std::unique_ptr<CachedMemory>& kept = slot.packed[operand];
    if (kept != nullptr) return kept->data;
    auto made = std::make_unique<CachedMemory>(slot.bytes);
    lib.memory_set_data_handle(slot.plain, operand);
    lib.memory_set_data_handle(slot.memory, made->data);
    ExecArg both[2] = {{arg_src, slot.plain}, {arg_dst, slot.memory}};
    check(lib.primitive_execute(slot.reorder_in, stream, 2, both), "reorder");
    if (packed_told != nullptr) packed_told(operand, slot.plain_bytes);
    kept = std::move(made);
    return kept->data;
}

void Op::run(void* const* operands) {
    std::lock_guard<ForkLock> guard(lock);
    if (threads != wanted_threads()) build();
    if (split.possible && split_products != 0) return run_split(operands);
    ThreadScope scope(threads);
    const CachedMemory arena(arena_bytes);  // for scratchpads and reordered operands
    char* const room = arena.data;
    for (size_t i = 0; i < slots.size(); i++) {
        Slot& slot = slots[i];
        if (slot.plain.object == nullptr) {
            lib.memory_set_data_handle(slot.memory, operands[i]);
            continue;
        }
        if (slot.constant) {
            lib.memory_set_data_handle(slot.memory, pack(slot, operands[i]));
            continue;
        }
        lib.memory_set_data_handle(slot.plain, operands[i]);
        lib.memory_set_data_handle(slot.memory, room + slot.offset);
        if (slot.reorder_in.object == nullptr) continue;
        ExecArg both[2] = {{arg_src, slot.plain}, {arg_dst, slot.memory}};
        check(lib.primitive_execute(slot.reorder_in, stream, 2, both), "reorder");
    }
    if (scratchpad.object != nullptr) lib.memory_set_data_handle(scratchpad, room + scratchpad_offset);
    check(lib.primitive_execute(primitive, stream, (int)args.size(), args.data()), "operation");
    for (Slot& slot : slots) {
        if (slot.reorder_out.object == nullptr) continue;
        ExecArg both[2] = {{arg_src, slot.memory}, {arg_dst, slot.plain}};
        check(lib.primitive_execute(slot.reorder_out, stream, 2, both), "reorder");
    }
}

// ---- specs as words ----

void Words::push(int64_t word) {
    if (size == capacity) throw std::invalid_argument("an operation has too many operands");
    data[size++] = word;
}

void Words::push(const Tensor& t) {
    push(t.dtype), push(t.layout), push(t.ndim);
    for (int i = 0; i < t.ndim; i++) push(t.dims[i]);
    for (int i = 0; i < t.ndim; i++) push(t.strides[i]);
}

namespace {

struct Reader {
    const int64_t* at;
    const int64_t* end;
    int64_t next() {
        if (at == end) throw std::invalid_argument("the description of an operation ends too early");
        return *at++;
    }
    int64_t count(int64_t most) {
        int64_t n = next();
        if (n < 0 || n > most) throw std::invalid_argument("the description of an operation has a count out of range");
        return n;
    }
    float real() {
        uint32_t bits = (uint32_t)next();
        float value;
        memcpy(&value, &bits, sizeof value);
        return value;
    }
    Tensor tensor() {
        Tensor t;
        t.dtype = next();
        t.layout = count(constant);
        t.ndim = count(7);  // one axis is kept for groups
        for (int i = 0; i < t.ndim; i++)
            if ((t.dims[i] = next()) <= 0) throw std::invalid_argument("oneDNN operations need sizes above zero");
        for (int i = 0; i < t.ndim; i++) t.strides[i] = next();
        return t;
    }
};

Spec decode(const int64_t* words, int64_t count) {
    Reader r{words, words + count};
    Spec s;
    s.kind = r.count(conv_weight_grad);
    s.groups = r.next();
    int64_t operands = r.count(4);
    if (operands < 3) throw std::invalid_argument("an operation needs at least three operands");
    for (int64_t i = 0; i < operands; i++) s.operands.push_back(r.tensor());
    for (int64_t n = r.count(5); n > 0; n--) {
        Window w{};
        w.stride = r.next(), w.dilation = r.next(), w.pad_left = r.next(), w.pad_right = r.next();
        s.windows.push_back(w);
    }
    for (int64_t n = r.count(16); n > 0; n--) {
        PostOp p{};
        p.algorithm = r.next(), p.alpha = r.real(), p.beta = r.real(), p.has_tensor = r.next() != 0;
        if (p.has_tensor) p.tensor = r.tensor();
        s.post.push_back(p);
    }
    if (is_conv(s.kind)) {
        int weight = weight_operand(s.kind);
        for (int i = 0; i < 3; i++)
            if (s.operands[i].ndim != (int64_t)s.windows.size() + 2) throw std::invalid_argument("a convolution's operands have as many spatial axes as its window");
        if (s.groups < 1 || s.operands[weight].dims[0] % s.groups) throw std::invalid_argument("groups must divide the output channels");
    }
    return s;
}

uint64_t hash_words(const int64_t* words, int64_t count) {
    uint64_t h = 0x9e3779b97f4a7c15ull ^ (uint64_t)count;
    for (int64_t i = 0; i < count; i++) {
        h = (h ^ (uint64_t)words[i]) * 0xff51afd7ed558ccdull;
        h ^= h >> 32;
    }
    return h;
}

// A compiled graph that came from a cache may be the first to need the library.
std::string& default_path = *new std::string;
void open_library(const char* path);
void need_library() {
    if (engine != nullptr) return;
    if (default_path.empty()) throw std::runtime_error("oneDNN is not loaded");
    open_library(default_path.c_str());
}

struct Entry {
    std::vector<int64_t> words;
    std::shared_ptr<Op> op;
};

struct Cache {
    std::unordered_multimap<uint64_t, Entry> entries;
    std::shared_ptr<Op> find(uint64_t hash, const int64_t* words, int64_t count) {
        auto range = entries.equal_range(hash);
        for (auto i = range.first; i != range.second; ++i)
            if ((int64_t)i->second.words.size() == count && !memcmp(i->second.words.data(), words, count * sizeof *words))
                return i->second.op;
        return nullptr;
    }
    std::shared_ptr<Op> find_or_build(const int64_t* words, int64_t count) {
        uint64_t hash = hash_words(words, count);
        if (std::shared_ptr<Op> op = find(hash, words, count)) return op;
        need_library();
        auto op = std::make_shared<Op>();
        op->spec = decode(words, count);
        op->plan_split();
        op->build();
        entries.emplace(hash, Entry{{words, words + count}, op});
        return op;
    }
};

// Never destroyed: at exit oneDNN may be gone before them. `mutex` guards all three; a fork waits for it, so that they are whole.
std::mutex& mutex = *new std::mutex;
const int forks_wait = pthread_atfork([] { mutex.lock(); }, [] { mutex.unlock(); }, [] { mutex.unlock(); });
Cache& handles = *new Cache;
Cache& recent = *new Cache;
std::unordered_set<int64_t>& known = *new std::unordered_set<int64_t>;
constexpr size_t most_recent = 4096;

int64_t register_op(Op* op) {
    known.insert((int64_t)op);
    return (int64_t)op;
}

thread_local std::string last_error;

}  // namespace

namespace {

void open_library(const char* path) {
    void* shared = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (shared == nullptr) throw std::runtime_error(dlerror());
    std::string missing;
#define X(name, result, parameters)                                                  \
    lib.name = reinterpret_cast<result(*) parameters>(dlsym(shared, "dnnl_" #name)); \
    if (lib.name == nullptr) missing = #name;
    DNNL_FUNCTIONS(X)
#undef X
    if (!missing.empty() || lib.version()->major != 3)
        throw std::runtime_error(std::string(path) + " is not oneDNN 3" + (missing.empty() ? "" : ": no dnnl_" + missing));
    check(lib.engine_create(&engine, cpu, 0), "engine");
    check(lib.stream_create(&stream, engine, in_order), "stream");
}

}  // namespace

std::string load(const char* path) {
    std::lock_guard<std::mutex> guard(mutex);
    if (engine == nullptr) open_library(path);
    const Version* v = lib.version();
    return std::to_string(v->major) + "." + std::to_string(v->minor) + "." + std::to_string(v->patch);
}

void set_path(const char* path) {
    std::lock_guard<std::mutex> guard(mutex);
    default_path = path;
}

bool loaded() { return engine != nullptr; }

int64_t create(const int64_t* words, int64_t count) {
    std::lock_guard<std::mutex> guard(mutex);
    return register_op(handles.find_or_build(words, count).get());
}

std::shared_ptr<Op> cached(const Words& words) {
    std::lock_guard<std::mutex> guard(mutex);
    if (recent.entries.size() >= most_recent) recent.entries.clear();
    return recent.find_or_build(words.data, words.size);
}

bool valid(int64_t op) {
    std::lock_guard<std::mutex> guard(mutex);
    return known.count(op) != 0;
}

const Spec& spec(int64_t op) { return ((Op*)op)->spec; }

bool writes(int64_t kind, int operand) { return operand < 4 && roles[kind][operand].output; }

const char* implementation(int64_t op) {
    const Op* o = (Op*)op;
    return o->split.possible && split_products != 0 ? "amx:split_f32" : o->implementation.c_str();
}

int split_products_set() { return split_products; }

int set_split_products(int products) {
    if (products != 0 && products != 1 && products != 3 && products != 6) throw std::invalid_argument("0, 1, 3 or 6 products of parts");
    return split_products.exchange(split_gemm::available() ? products : 0);
}

void run(Op* op, void* const* operands) { op->run(operands); }

void when_packed(void (*told)(const void*, size_t)) { packed_told = told; }

void forget_packed(const char* data, size_t bytes) {
    std::lock_guard<std::mutex> guard(mutex);
    for (auto& [hash, entry] : handles.entries) {
        std::lock_guard<ForkLock> busy(entry.op->lock);
        for (Slot& slot : entry.op->slots)
            for (auto i = slot.packed.begin(); i != slot.packed.end();)
                i = i->first >= data && i->first < data + bytes ? slot.packed.erase(i) : std::next(i);
    }
}

}  // namespace onednn

extern "C" int onednn_run(int64_t op, void* const* operands) {
    try {
        onednn::run((onednn::Op*)op, operands);
        return 0;
    } catch (const std::exception& e) {
        onednn::last_error = e.what();
        return -1;
    }
}

extern "C" int64_t onednn_create(const int64_t* words, int64_t count) {
    try {
        return onednn::create(words, count);
    } catch (const std::exception& e) {
        onednn::last_error = e.what();
        return 0;
    }
}

extern "C" const char* onednn_last_error() { return onednn::last_error.c_str(); }
