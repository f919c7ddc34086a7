// Flambeau's ahead-of-time packages in C++ programs without Python: load a .pt2, run it.
//
//     flambeau::Package package("resnet18.pt2");
//     flambeau::Session session(package);
//     std::vector<float> image(3 * 224 * 224);
//     std::vector<flambeau::Tensor> out = session.run({flambeau::Tensor::of(image.data(), {1, 3, 224, 224})});
//     const float* scores = out[0].as<float>();
//
// C++17, this header and package.h, on Linux:   g++ -std=c++17 -IPATH/flambeau/include main.cpp -ldl -pthread
// All errors are exceptions, flambeau::Error or what derives from it. Packages and tensors may be shared by threads; a session runs one
// call at a time, so each thread has its own.
#pragma once
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "package.h"

namespace flambeau {

// Whatever went wrong; what() says it in one line.
struct Error : std::runtime_error {
    using std::runtime_error::runtime_error;
};
// The file is no package, a damaged one, or one that does not fit this machine or this header. Nothing of it has been run.
struct PackageError : Error {
    using Error::Error;
};
// A call's inputs are not what the program was made for.
struct InputError : Error {
    using Error::Error;
};
// The program computed an index that is out of bounds.
struct IndexError : Error {
    using Error::Error;
};

#define FL_CODE(code, name, bytes) code,
enum class DType : int32_t { FLAMBEAU_DTYPES(FL_CODE) };
#undef FL_CODE

inline const char* name_of(DType dtype) {
#define FL_NAME(code, name, bytes) name,
    static const char* const names[] = {FLAMBEAU_DTYPES(FL_NAME)};
#undef FL_NAME
    return names[(int32_t)dtype];
}

inline int64_t itemsize(DType dtype) {
#define FL_BYTES(code, name, bytes) bytes,
    static const int64_t sizes[] = {FLAMBEAU_DTYPES(FL_BYTES)};
#undef FL_BYTES
    return sizes[(int32_t)dtype];
}

template <class T>
struct dtype_of;
#define FL_TYPE(type, code)                         \
    template <>                                     \
    struct dtype_of<type> {                         \
        static constexpr DType value = DType::code; \
    };
FL_TYPE(bool, bool_) FL_TYPE(uint8_t, uint8) FL_TYPE(int8_t, int8) FL_TYPE(int16_t, int16) FL_TYPE(int32_t, int32) FL_TYPE(int64_t, int64)
FL_TYPE(uint16_t, uint16) FL_TYPE(uint32_t, uint32) FL_TYPE(uint64_t, uint64) FL_TYPE(float, float32) FL_TYPE(double, float64)
#undef FL_TYPE

// Sizes, strides in elements, and memory: the caller's, or some that the tensor shares.
struct Tensor {
    void* data = nullptr;
    DType dtype = DType::float32;
    std::vector<int64_t> sizes, strides;
    std::shared_ptr<void> memory;

    // Over the caller's memory, which has to stay for as long as the tensor; contiguous where no strides are given.
    template <class T>
    static Tensor of(T* data, std::vector<int64_t> sizes, std::vector<int64_t> strides = {}) {
        return of((void*)data, dtype_of<std::remove_const_t<T>>::value, std::move(sizes), std::move(strides));
    }
    static Tensor of(void* data, DType dtype, std::vector<int64_t> sizes, std::vector<int64_t> strides = {}) {
        if (strides.empty()) strides = contiguous(sizes);
        if (strides.size() != sizes.size()) throw InputError("a tensor has as many strides as sizes");
        return {data, dtype, std::move(sizes), std::move(strides), nullptr};
    }
    // In memory of its own, with arbitrary contents.
    static Tensor empty(DType dtype, std::vector<int64_t> sizes) {
        int64_t count = 1;
        for (int64_t size : sizes) count *= size;
        std::shared_ptr<void> memory(std::malloc((size_t)std::max<int64_t>(1, count * itemsize(dtype))), std::free);
        if (memory == nullptr) throw std::bad_alloc();
        Tensor made = of(memory.get(), dtype, std::move(sizes));
        made.memory = std::move(memory);
        return made;
    }

    int64_t numel() const {
        int64_t count = 1;
        for (int64_t size : sizes) count *= size;
        return count;
    }
    bool is_contiguous() const { return numel() == 0 || strides == contiguous(sizes); }
    // Its elements; InputError where they are of another type.
    template <class T>
    T* as() const {
        if (dtype_of<T>::value != dtype) throw InputError(std::string("a tensor of ") + name_of(dtype) + " was asked for as " + name_of(dtype_of<T>::value));
        return (T*)data;
    }

private:
    static std::vector<int64_t> contiguous(const std::vector<int64_t>& sizes) {
        std::vector<int64_t> strides(sizes.size());
        int64_t next = 1;
        for (size_t i = sizes.size(); i-- > 0; next *= std::max<int64_t>(1, sizes[i])) strides[i] = next;
        return strides;
    }
};

// An input or an output of a package: sizes of -1 vary, and `dims` tells what they are called.
struct Port {
    std::string name;
    DType dtype;
    std::vector<int64_t> sizes;
    std::vector<std::string> dims;
};

struct Options {
    std::string onednn;         // where oneDNN's library lies; else $FLAMBEAU_ONEDNN, else where the loader finds libdnnl.so.3
    bool check_weights = true;  // compare their checksum; the library's always is
};

namespace detail {

// -- checksums ------------------------------------------------------------------------------------------------------

// SHA-256 (FIPS 180-4), in hexadecimal digits.
inline std::string sha256(const unsigned char* data, size_t size) {
    static constexpr uint32_t k[64] = {
        0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5, 0xd807aa98, 0x12835b01, 0x243185be,
        0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174, 0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa,
        0x5cb0a9dc, 0x76f988da, 0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967, 0x27b70a85,
        0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85, 0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3,
        0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070, 0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f,
        0x682e6ff3, 0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};
    uint32_t h[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
    auto turned = [](uint32_t x, int n) { return x >> n | x << (32 - n); };
    auto block = [&](const unsigned char* at) {
        uint32_t w[64], s[8];
        for (int i = 0; i < 16; i++) w[i] = (uint32_t)at[4 * i] << 24 | at[4 * i + 1] << 16 | at[4 * i + 2] << 8 | at[4 * i + 3];
        for (int i = 16; i < 64; i++)
            w[i] = w[i - 16] + w[i - 7] + (turned(w[i - 15], 7) ^ turned(w[i - 15], 18) ^ w[i - 15] >> 3) +
                   (turned(w[i - 2], 17) ^ turned(w[i - 2], 19) ^ w[i - 2] >> 10);
        std::copy_n(h, 8, s);
        for (int i = 0; i < 64; i++) {
            uint32_t one = s[7] + (turned(s[4], 6) ^ turned(s[4], 11) ^ turned(s[4], 25)) + ((s[4] & s[5]) ^ (~s[4] & s[6])) + k[i] + w[i];
            uint32_t two = (turned(s[0], 2) ^ turned(s[0], 13) ^ turned(s[0], 22)) + ((s[0] & s[1]) ^ (s[0] & s[2]) ^ (s[1] & s[2]));
            std::copy_backward(s, s + 7, s + 8);
            s[4] += one, s[0] = one + two;
        }
        for (int i = 0; i < 8; i++) h[i] += s[i];
    };
    size_t whole = size / 64 * 64;
    for (size_t i = 0; i < whole; i += 64) block(data + i);
    unsigned char last[128] = {};
    std::copy_n(data + whole, size - whole, last);
    last[size - whole] = 0x80;
    size_t end = size - whole < 56 ? 64 : 128;
    for (int i = 0; i < 8; i++) last[end - 1 - i] = (unsigned char)((uint64_t)size * 8 >> 8 * i);
    for (size_t i = 0; i < end; i += 64) block(last + i);
    std::string text;
    for (uint32_t word : h)
        for (int shift = 28; shift >= 0; shift -= 4) text += "0123456789abcdef"[word >> shift & 15];
    return text;
}

// CRC-32 as zip archives have it: sixteen bytes at a time by tables or, where the processor multiplies polynomials, sixty-four by folding
// (Gopal et al., "Fast CRC Computation for Generic Polynomials Using PCLMULQDQ Instruction", Intel, 2009).
class Crc32 {
    using Tables = std::array<std::array<uint32_t, 256>, 16>;
    static const Tables& tables() {
        static const Tables made = [] {
            Tables t{};
            for (uint32_t i = 0; i < 256; i++) {
                uint32_t c = i;
                for (int bit = 0; bit < 8; bit++) c = c & 1 ? 0xedb88320u ^ c >> 1 : c >> 1;
                t[0][i] = c;
            }
            for (int k = 1; k < 16; k++)
                for (int i = 0; i < 256; i++) t[k][i] = t[0][t[k - 1][i] & 255] ^ t[k - 1][i] >> 8;
            return t;
        }();
        return made;
    }
    uint32_t state = ~0u;

#if defined(__x86_64__)
    // Sixteen bytes that leave the same remainder as what came before and `size` bytes, a multiple of 64, do together.
    __attribute__((target("pclmul,sse4.1"))) static void fold(uint32_t before, const unsigned char* data, size_t size, unsigned char* to) {
        const __m128i by_64 = _mm_set_epi64x(0x01c6e41596, 0x0154442bd4), by_16 = _mm_set_epi64x(0x00ccaa009e, 0x01751997d0);
        __m128i x[4];
        for (int i = 0; i < 4; i++) x[i] = _mm_loadu_si128((const __m128i*)data + i);
        x[0] = _mm_xor_si128(x[0], _mm_cvtsi32_si128((int)before));
        for (data += 64, size -= 64; size > 0; data += 64, size -= 64)
            for (int i = 0; i < 4; i++) {
                __m128i moved = _mm_xor_si128(_mm_clmulepi64_si128(x[i], by_64, 0x00), _mm_clmulepi64_si128(x[i], by_64, 0x11));
                x[i] = _mm_xor_si128(moved, _mm_loadu_si128((const __m128i*)data + i));
            }
        for (int i = 0; i < 3; i++) {
            __m128i moved = _mm_xor_si128(_mm_clmulepi64_si128(x[i], by_16, 0x00), _mm_clmulepi64_si128(x[i], by_16, 0x11));
            x[i + 1] = _mm_xor_si128(x[i + 1], moved);
        }
        _mm_storeu_si128((__m128i*)to, x[3]);
    }
#endif

public:
    void add(const unsigned char* data, size_t size) {
#if defined(__x86_64__)
        unsigned char folded[16];
        const size_t whole = size / 64 * 64;
        if (whole > 0 && __builtin_cpu_supports("pclmul")) {
            fold(state, data, whole, folded);
            state = 0;
            by_tables(folded, sizeof folded);
            data += whole, size -= whole;
        }
#endif
        by_tables(data, size);
    }
    uint32_t value() const { return ~state; }

private:
    void by_tables(const unsigned char* data, size_t size) {
        const Tables& t = tables();
        uint32_t c = state;
        for (; size >= 16; data += 16, size -= 16) {
            uint32_t words[4];
            std::memcpy(words, data, 16);
            words[0] ^= c, c = 0;
            for (int i = 0; i < 4; i++)
                c ^= t[15 - 4 * i][words[i] & 255] ^ t[14 - 4 * i][words[i] >> 8 & 255] ^ t[13 - 4 * i][words[i] >> 16 & 255] ^ t[12 - 4 * i][words[i] >> 24];
        }
        for (; size > 0; data++, size--) c = t[0][(c ^ *data) & 255] ^ c >> 8;
        state = c;
    }
};

// -- the file -------------------------------------------------------------------------------------------------------

struct File {
    std::string path;
    int descriptor = -1;
    uint64_t size = 0;

    explicit File(std::string where) : path(std::move(where)), descriptor(::open(path.c_str(), O_RDONLY | O_CLOEXEC)) {
        struct stat facts;
        if (descriptor < 0 || fstat(descriptor, &facts) != 0) throw PackageError(path + " cannot be opened: " + std::strerror(errno));
        if (!S_ISREG(facts.st_mode)) throw PackageError(path + " is no file");
        size = (uint64_t)facts.st_size;
    }
    ~File() {
        if (descriptor >= 0) ::close(descriptor);
    }
    File(const File&) = delete;
    File& operator=(const File&) = delete;

    [[noreturn]] void refuse(const std::string& why) const {
        throw PackageError(path + " is no ahead-of-time package of Flambeau's, or a damaged one: " + why);
    }
    void read_into(void* to, uint64_t offset, size_t count) const {
        if (offset > size || count > size - offset) refuse("it ends too early");
        for (size_t done = 0; done < count;) {
            ssize_t got = pread(descriptor, (char*)to + done, count - done, (off_t)(offset + done));
            if (got < 0 && errno == EINTR) continue;
            if (got <= 0) refuse("it cannot be read");
            done += (size_t)got;
        }
    }
    std::vector<unsigned char> read(uint64_t offset, uint64_t count) const {
        if (offset > size || count > size - offset) refuse("it ends too early");
        std::vector<unsigned char> bytes((size_t)count);
        read_into(bytes.data(), offset, bytes.size());
        return bytes;
    }
};

inline uint64_t number(const std::vector<unsigned char>& bytes, size_t at, int count) {
    uint64_t value = 0;
    for (int i = 0; i < count; i++) value |= (uint64_t)bytes.at(at + i) << 8 * i;
    return value;
}

struct Member {
    uint64_t offset, size;
};

constexpr const char *manifest_name = "manifest.txt", *library_name = "library.so", *weights_name = "weights.bin";

// The members of a zip archive whose members are stored as they are (APPNOTE 6.3.10, with its 64-bit sizes).
inline std::map<std::string, Member> members_of(const File& file) {
    constexpr uint64_t end_size = 22, locator_size = 20, end64_size = 56, entry_size = 46, local_size = 30;
    if (file.size < end_size) file.refuse("it ends too early");
    std::vector<unsigned char> end = file.read(file.size - end_size, end_size);
    if (number(end, 0, 4) != 0x06054b50) file.refuse("there is no archive's directory at its end");
    uint64_t count = number(end, 10, 2), size = number(end, 12, 4), offset = number(end, 16, 4);
    if (offset == 0xffffffff || size == 0xffffffff || count == 0xffff) {
        if (file.size < end_size + locator_size) file.refuse("it ends too early");
        std::vector<unsigned char> locator = file.read(file.size - end_size - locator_size, locator_size);
        if (number(locator, 0, 4) != 0x07064b50) file.refuse("its directory has no place");
        std::vector<unsigned char> wide = file.read(number(locator, 8, 8), end64_size);
        if (number(wide, 0, 4) != 0x06064b50) file.refuse("its directory has no place");
        count = number(wide, 32, 8), size = number(wide, 40, 8), offset = number(wide, 48, 8);
    }
    if (size > 1 << 16) file.refuse("its directory is too long");
    std::vector<unsigned char> entries = file.read(offset, size);
    std::map<std::string, Member> found;
    size_t at = 0;
    for (uint64_t i = 0; i < count; i++) {
        if (at + entry_size > entries.size() || number(entries, at, 4) != 0x02014b50) file.refuse("its directory is damaged");
        uint64_t packed = number(entries, at + 20, 4), plain = number(entries, at + 24, 4), local = number(entries, at + 42, 4);
        size_t name_size = number(entries, at + 28, 2), extra = number(entries, at + 30, 2), comment = number(entries, at + 32, 2);
        size_t next = at + entry_size + name_size + extra + comment;
        if (next > entries.size()) file.refuse("its directory is damaged");
        std::string name((const char*)entries.data() + at + entry_size, name_size);
        for (size_t field = at + entry_size + name_size; field + 4 <= next - comment;) {
            size_t value = field + 4, length = number(entries, field + 2, 2);
            if (number(entries, field, 2) == 1)
                for (uint64_t* wide : {&plain, &packed, &local})
                    if (*wide == 0xffffffff && value + 8 <= entries.size()) *wide = number(entries, value, 8), value += 8;
            field += 4 + length;
        }
        if (name != manifest_name && name != library_name && name != weights_name) {
            std::string shown;
            for (unsigned char c : name.substr(0, 60)) shown += c < 32 || c > 126 ? '?' : (char)c;
            file.refuse("it has a member \"" + shown + "\"");
        }
        if (number(entries, at + 10, 2) != 0 || packed != plain) file.refuse("a member is compressed");
        std::vector<unsigned char> header = file.read(local, local_size);
        if (number(header, 0, 4) != 0x04034b50) file.refuse("a member is not where its directory says");
        Member member{local + local_size + number(header, 26, 2) + number(header, 28, 2), plain};
        if (member.offset > file.size || member.size > file.size - member.offset) file.refuse("it ends too early");
        if (!found.emplace(name, member).second) file.refuse("a member is there twice");
        at = next;
    }
    for (const char* name : {manifest_name, library_name, weights_name})
        if (found.count(name) == 0) file.refuse(std::string("it has no ") + name);
    return found;
}

// -- what the manifest says -----------------------------------------------------------------------------------------

constexpr int64_t newest_version = 1;

// Lines of a word and what belongs to it; the last one is the checksum of the lines before it.
inline std::map<std::string, std::string> manifest_of(const File& file, const Member& member) {
    if (member.size > 1 << 16) file.refuse("its manifest is too long");
    std::vector<unsigned char> bytes = file.read(member.offset, member.size);
    std::string text((const char*)bytes.data(), bytes.size());
    size_t last = text.rfind("\nsha256 ");
    if (last == std::string::npos || text.compare(0, 17, "flambeau package\n") != 0) file.refuse("its manifest is another file's");
    if (text.substr(last + 1) != "sha256 " + sha256(bytes.data(), last + 1) + "\n") file.refuse("its manifest is damaged");
    std::map<std::string, std::string> facts;
    std::istringstream lines(text.substr(0, last));
    for (std::string line; std::getline(lines, line);) facts[line.substr(0, line.find(' '))] = line.substr(std::min(line.size(), line.find(' ') + 1));
    return facts;
}

// Whether this processor has what code was compiled for.
inline bool has_feature(const std::string& name) {
#if defined(__x86_64__)
    __builtin_cpu_init();
#define FL_FEATURE(feature) \
    if (name == feature) return __builtin_cpu_supports(feature);
    FL_FEATURE("sse4.1") FL_FEATURE("sse4.2") FL_FEATURE("popcnt") FL_FEATURE("avx") FL_FEATURE("avx2") FL_FEATURE("fma") FL_FEATURE("bmi")
    FL_FEATURE("bmi2") FL_FEATURE("avx512f") FL_FEATURE("avx512bw") FL_FEATURE("avx512vl") FL_FEATURE("avx512dq") FL_FEATURE("avx512cd")
    FL_FEATURE("avx512vbmi") FL_FEATURE("avx512vbmi2") FL_FEATURE("avx512vnni") FL_FEATURE("avx512bitalg") FL_FEATURE("avx512ifma")
    FL_FEATURE("avx512vpopcntdq") FL_FEATURE("avx512bf16")
#undef FL_FEATURE
#endif
    return false;
}

inline const char* machine() {
#if defined(__x86_64__)
    return "x86_64";
#elif defined(__aarch64__)
    return "aarch64";
#else
    return "another";
#endif
}

inline int64_t integer(const std::string& text) {
    return text.empty() || text.size() > 12 || text.find_first_not_of("0123456789") != std::string::npos ? -1 : std::stoll(text);
}

inline void check_fit(const File& file, std::map<std::string, std::string>& facts) {
    int64_t version = integer(facts["version"]), abi = integer(facts["abi"]);
    if (version < 1) file.refuse("its manifest tells no version");
    if (version > newest_version)
        throw PackageError(file.path + " is a package of version " + facts["version"] + "; this header (flambeau/aoti.h) reads versions up to " +
                           std::to_string(newest_version) + ", so a newer one is needed");
    if (abi != FLAMBEAU_PACKAGE_ABI)
        throw PackageError(file.path + " has a library of interface " + facts["abi"].substr(0, 12) + ", and this program was built for interface " +
                           std::to_string(FLAMBEAU_PACKAGE_ABI) + ": build it with the flambeau/aoti.h of the Flambeau that made the package");
    if (facts["machine"] != machine())
        throw PackageError(file.path + " was compiled for " + facts["machine"].substr(0, 20) + ", and this machine is " + machine());
    std::istringstream needed(facts["needs"]);
    std::string missing;
    for (std::string name; needed >> name;)
        if (!has_feature(name)) missing += " " + name;
    if (!missing.empty())
        throw PackageError(file.path + " was compiled for a processor with" + missing + ", which this one has not: package it on a machine like this, or with " +
                           "ONEDNN_MAX_CPU_ISA=AVX2 in the environment");
}

// A shared library from memory. It stays for the process's life, as threads and memory that it made may; so does its descriptor, by
// which the dynamic loader knows it.
inline void* open_library(const std::string& path, const std::vector<unsigned char>& content) {
    auto write_all = [&](int file) {
        for (size_t done = 0; done < content.size();) {
            ssize_t put = ::write(file, content.data() + done, content.size() - done);
            if (put < 0 && errno == EINTR) continue;
            if (put <= 0) return false;
            done += (size_t)put;
        }
        return true;
    };
    int file = memfd_create("flambeau-package", MFD_CLOEXEC);
    if (file >= 0 && write_all(file))
        if (void* library = dlopen(("/proc/self/fd/" + std::to_string(file)).c_str(), RTLD_NOW | RTLD_LOCAL)) return library;
    if (file >= 0) ::close(file);
    const char* folder = std::getenv("TMPDIR");   // where the system runs nothing from memory
    std::string name = std::string(folder && *folder ? folder : "/tmp") + "/flambeau-package-XXXXXX";
    file = mkstemp(name.data());
    void* library = file >= 0 && write_all(file) ? dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL) : nullptr;
    const char* reason = library == nullptr && file >= 0 ? dlerror() : nullptr;
    if (file >= 0) ::unlink(name.c_str()), ::close(file);
    if (library == nullptr) throw PackageError(path + ": its library cannot be loaded: " + (reason ? reason : std::strerror(errno)));
    return library;
}

}  // namespace detail

// A package, loaded: its library and its weights, which all sessions share. The weights stay in the file, mapped.
class Package {
public:
    explicit Package(const std::string& path, const Options& options = {}) : state(std::make_shared<State>(path, options)) {}

    const std::vector<Port>& inputs() const { return state->inputs; }
    const std::vector<Port>& outputs() const { return state->outputs; }
    const std::string& path() const { return state->path; }
    // What the manifest says: "made", the Flambeau that made it, and the like.
    const std::map<std::string, std::string>& facts() const { return state->facts; }

private:
    friend class Session;

    struct State {
        std::string path;
        std::map<std::string, std::string> facts;
        std::vector<Port> inputs, outputs;
        const FlambeauModel* model = nullptr;
        void* mapping = nullptr;
        uint64_t mapped = 0;
        const char* weights = nullptr;

        State(const std::string& where, const Options& options) : path(where) {
            detail::File file(where);
            std::map<std::string, detail::Member> members = detail::members_of(file);
            facts = detail::manifest_of(file, members[detail::manifest_name]);
            detail::check_fit(file, facts);
            const detail::Member& stored = members[detail::weights_name];
            std::vector<unsigned char> library = checked_library(file, members[detail::library_name]);
            check_weights(file, stored, options.check_weights);
            map(file, stored);
            try {
                start(detail::open_library(path, library), stored.size, options);
            } catch (...) {
                unmap();
                throw;
            }
        }
        ~State() {
            if (model != nullptr) model->close(model, weights);
            unmap();
        }

        std::vector<unsigned char> checked_library(const detail::File& file, const detail::Member& member) {
            std::vector<unsigned char> content = file.read(member.offset, member.size);
            if (facts["library"] != std::to_string(member.size) + " " + detail::sha256(content.data(), content.size())) file.refuse("its library is damaged");
            return content;
        }

        void check_weights(const detail::File& file, const detail::Member& member, bool contents) {
            std::istringstream told(facts["weights"]);
            uint64_t size = 0;
            uint32_t sum = 0;
            if (!(told >> size >> sum) || size != member.size || member.offset % 64 != 0) file.refuse("its weights are damaged");
            if (!contents) return;
            detail::Crc32 crc;
            std::vector<unsigned char> part((size_t)std::min<uint64_t>(size, 1 << 18));
            for (uint64_t done = 0; done < size; done += part.size()) {
                size_t count = (size_t)std::min<uint64_t>(part.size(), size - done);
                file.read_into(part.data(), member.offset + done, count);
                crc.add(part.data(), count);
            }
            if (crc.value() != sum) file.refuse("its weights are damaged");
        }

        void map(const detail::File& file, const detail::Member& member) {
            uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), start = member.offset / page * page;
            mapped = member.offset - start + member.size;
            mapping = mapped == 0 ? MAP_FAILED : mmap(nullptr, (size_t)mapped, PROT_READ, MAP_PRIVATE, file.descriptor, (off_t)start);
            if (mapping == MAP_FAILED) {
                mapping = nullptr;
                if (member.size > 0) throw PackageError(path + ": its weights cannot be mapped: " + std::strerror(errno));
                weights = (const char*)this;
            } else {
                weights = (const char*)mapping + (member.offset - start);
            }
        }
        void unmap() {
            if (mapping != nullptr) munmap(mapping, (size_t)mapped);
            mapping = nullptr;
        }

        void start(void* library, uint64_t size, const Options& options) {
            auto entry = (const FlambeauModel* (*)())dlsym(library, "flambeau_model");
            const FlambeauModel* found = entry != nullptr ? entry() : nullptr;
            if (found == nullptr || found->abi != FLAMBEAU_PACKAGE_ABI || found->weights != size) throw PackageError(path + ": its library is not one of a package, or not of these weights");
            const char* told = std::getenv("FLAMBEAU_ONEDNN");
            found->open(found, weights, !options.onednn.empty() ? options.onednn.c_str() : told && *told ? told : nullptr);
            model = found;
            read_ports(inputs, model->inputs, model->n_inputs);
            read_ports(outputs, model->outputs, model->n_outputs);
        }
        static void read_ports(std::vector<Port>& ports, const FlambeauPort* from, int count) {
            for (const FlambeauPort* p = from; p < from + count; p++)
                ports.push_back({p->name, (DType)p->dtype, {p->sizes, p->sizes + p->ndim}, {p->dims, p->dims + p->ndim}});
        }
    };

    std::shared_ptr<State> state;
};

// Runs a package: one call at a time. It has its own copies of the buffers that the program writes to.
class Session {
public:
    explicit Session(const Package& package, int threads = 0) : package(package.state) {
        set_threads(threads);
        if ((session = this->package->model->new_session(this->package->model, this->package->weights)) == nullptr) throw std::bad_alloc();
    }
    ~Session() {
        if (session != nullptr) package->model->end_session(session);
    }
    Session(Session&& other) noexcept : package(other.package), session(std::exchange(other.session, nullptr)), count(other.count) {}
    Session(const Session&) = delete;
    Session& operator=(const Session&) = delete;

    // How many threads a call computes on; 0: as many as there are processors.
    void set_threads(int threads) { count = threads > 0 ? threads : std::max(1, (int)std::thread::hardware_concurrency()); }
    int threads() const { return count; }

    // The outputs for these inputs, in the order of Package::inputs and ::outputs. What the program writes to its inputs is written.
    std::vector<Tensor> run(const std::vector<Tensor>& inputs) {
        const FlambeauModel* model = package->model;
        if ((int)inputs.size() != model->n_inputs)
            throw InputError(package->path + " takes " + std::to_string(model->n_inputs) + " tensors, got " + std::to_string(inputs.size()));
        std::vector<FlambeauTensor> given;
        for (const Tensor& t : inputs) {
            if (t.sizes.size() > FLAMBEAU_MAX_DIMS || t.strides.size() != t.sizes.size()) throw InputError("a tensor has too many dimensions, or too few strides");
            given.push_back({t.data, t.sizes.data(), t.strides.data(), (int32_t)t.dtype, (int32_t)t.sizes.size()});
        }
        std::vector<FlambeauResult> made((size_t)model->n_outputs);
        char message[600];
        int status = model->run(session, given.data(), made.data(), count, message, sizeof message);
        if (status == FLAMBEAU_BAD_INPUT) throw InputError(message);
        if (status == FLAMBEAU_BAD_INDEX) throw IndexError(message);
        if (status != FLAMBEAU_OK) throw Error(message);
        std::vector<Tensor> outputs;
        for (const FlambeauResult& r : made)
            outputs.push_back({r.data, (DType)r.dtype, {r.sizes, r.sizes + r.ndim}, {r.strides, r.strides + r.ndim}, std::shared_ptr<void>(r.memory, model->release)});
        return outputs;
    }

private:
    std::shared_ptr<Package::State> package;
    void* session = nullptr;
    int count = 1;
};

}  // namespace flambeau
