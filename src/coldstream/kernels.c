/* The data path on a CPU: what torch does in many passes over a batch, in one pass over each image.
 *
 * Every function gives the bits of its counterpart in Python (coldstream.replay.packing, coldstream.augment.ops,
 * coldstream.augment.mixing, Engine.normalise). Floats are rounded after every operation, as torch rounds them
 * between its kernels: compile without contraction. Images are bytes, (height, width, channels), without gaps.
 */

#include <math.h>
#include <stdint.h>
#include <string.h>
#ifdef __AVX2__
#include <immintrin.h>
#endif

typedef uint8_t u8;
typedef int64_t i64;

/* Unpack `values` numbers of `bits` bits from each row, most significant bit first, and shift them back up. */
void unpack(const u8 *packed, i64 rows, i64 row_bytes, i64 values, int bits, u8 *out)
{
    const unsigned mask = (1u << bits) - 1, up = 8 - bits;
    for (i64 row = 0; row < rows; row++, packed += row_bytes, out += values) {
        i64 full = values / 8;
        if (bits == 6) { /* the usual case: four values in three bytes */
            for (i64 i = 0; i < values / 4; i++) {
                unsigned a = packed[3 * i], b = packed[3 * i + 1], c = packed[3 * i + 2];
                out[4 * i] = a & 0xFC;
                out[4 * i + 1] = (a << 6 | b >> 2) & 0xFC;
                out[4 * i + 2] = (b << 4 | c >> 4) & 0xFC;
                out[4 * i + 3] = c << 2;
            }
            full = values / 4 * 4 / 8;
        } else {
            for (i64 i = 0; i < full; i++) { /* eight values fill `bits` bytes */
                uint64_t word = 0;
                for (int j = 0; j < bits; j++) word = word << 8 | packed[i * bits + j];
                for (int j = 0; j < 8; j++) out[8 * i + j] = (word >> (7 - j) * bits & mask) << up;
            }
        }
        for (i64 i = full * 8; i < values; i++) { /* at the end there may be no byte after the last one */
            i64 bit = i * bits, byte = bit / 8;
            unsigned pair = packed[byte] << 8 | (byte + 1 < row_bytes ? packed[byte + 1] : 0);
            out[i] = (pair >> (16 - bits - bit % 8) & mask) << up;
        }
    }
}

/* Weighted sum of two neighbours, rounded: (a * near + b * far + half) >> bits. */
static inline u8 share(u8 a, u8 b, int32_t near, int32_t far, int bits)
{
    return (u8)((a * near + b * far + (1 << (bits - 1))) >> bits);
}

#ifdef __AVX2__
/* The same for four pairs of bytes, side by side as 16-bit numbers, with their weights side by side. */
static inline __m128i shares(__m128i pairs, __m128i weights, int bits)
{
    return _mm_srai_epi32(_mm_add_epi32(_mm_madd_epi16(pairs, weights), _mm_set1_epi32(1 << (bits - 1))), bits);
}

static inline __m128i weights_of(int32_t near, int32_t far)
{
    return _mm_set1_epi32((int32_t)((uint32_t)far << 16 | (uint32_t)near));
}
#endif

/* Interpolate a line: output byte x is a weighted sum of input bytes first[x] and second[x]. */
static void across_line(const u8 *restrict from, u8 *restrict to, i64 length, const int32_t *restrict first, int bits)
{
    const int32_t *second = first + length, *near = second + length, *far = near + length;
    for (i64 x = 0; x < length; x++) to[x] = share(from[first[x]], from[second[x]], near[x], far[x], bits);
}

/* The same for pixels of three bytes. Reads and writes one byte past the end. */
static void across_pixels(const u8 *restrict from, u8 *restrict to, i64 length, const int32_t *restrict first, int bits)
{
#ifdef __AVX2__
    const int32_t *second = first + length, *near = second + length, *far = near + length;
    const __m128i bytes = _mm_setr_epi8(0, 4, 8, 12, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1);
    for (i64 x = 0; x < length; x += 3) { /* a fourth value is computed and overwritten by the next pixel */
        int32_t left, right;
        memcpy(&left, from + first[x], 4);
        memcpy(&right, from + second[x], 4);
        __m128i pairs = _mm_cvtepu8_epi16(_mm_unpacklo_epi8(_mm_cvtsi32_si128(left), _mm_cvtsi32_si128(right)));
        __m128i bytes_out = _mm_shuffle_epi8(shares(pairs, weights_of(near[x], far[x]), bits), bytes);
        int32_t four = _mm_cvtsi128_si32(bytes_out);
        memcpy(to + x, &four, 4);
    }
#else
    across_line(from, to, length, first, bits);
#endif
}

/* Interpolate a line between the lines above and below it. */
static void between(const u8 *restrict above, const u8 *restrict below, u8 *restrict to, i64 length, int32_t near,
                    int32_t far, int bits)
{
    i64 x = 0;
#ifdef __AVX2__
    const __m128i weights = weights_of(near, far);
    for (; x + 8 <= length; x += 8) {
        __m128i pairs = _mm_unpacklo_epi8(_mm_loadl_epi64((const __m128i *)(above + x)),
                                          _mm_loadl_epi64((const __m128i *)(below + x)));
        __m128i low = shares(_mm_cvtepu8_epi16(pairs), weights, bits);
        __m128i high = shares(_mm_cvtepu8_epi16(_mm_srli_si128(pairs, 8)), weights, bits);
        __m128i words = _mm_packs_epi32(low, high);
        _mm_storel_epi64((__m128i *)(to + x), _mm_packus_epi16(words, words));
    }
#endif
    for (; x < length; x++) to[x] = share(above[x], below[x], near, far, bits);
}

/* Enlarge images by bilinear interpolation, first along each line, then between lines.
 *
 * `across` holds for every output byte of a line its two source bytes and their weights in units of 2**-bits; `down`
 * the same for every output line. The intermediate lines are rounded to bytes, as torch and Pillow do. `scratch` holds
 * `height` output lines and one byte. */
void enlarge(const u8 *images, u8 *out, i64 count, i64 height, i64 line, i64 out_height, i64 out_line, int channels,
             const int32_t *across, int across_bits, const int32_t *down, int down_bits, u8 *scratch)
{
    for (i64 i = 0; i < count; i++, images += height * line, out += out_height * out_line) {
        for (i64 y = 0; y < height; y++) {
            const int last = i == count - 1 && y == height - 1; /* nothing may be read after it */
            if (channels == 3 && !last)
                across_pixels(images + y * line, scratch + y * out_line, out_line, across, across_bits);
            else
                across_line(images + y * line, scratch + y * out_line, out_line, across, across_bits);
        }
        for (i64 y = 0; y < out_height; y++)
            between(scratch + down[y] * out_line, scratch + down[out_height + y] * out_line, out + y * out_line,
                    out_line, down[2 * out_height + y], down[3 * out_height + y], down_bits);
    }
}

static u8 cut(float value)
{
    return (u8)(int32_t)(value < 0 ? 0 : value > 255 ? 255 : value);
}

static u8 luma(const u8 *pixel)
{
    float red = 0.2989f * pixel[0], green = 0.587f * pixel[1], blue = 0.114f * pixel[2];
    return (u8)(int32_t)((red + green) + blue);
}

static void look_up(const u8 *image, u8 *out, i64 pixels, int channels, u8 tables[][256])
{
    if (channels == 3)
        for (i64 i = 0; i < 3 * pixels; i += 3) {
            out[i] = tables[0][image[i]];
            out[i + 1] = tables[1][image[i + 1]];
            out[i + 2] = tables[2][image[i + 2]];
        }
    else
        for (i64 i = 0; i < pixels; i++) out[i] = tables[0][image[i]];
}

static void warp(const u8 *image, u8 *out, i64 pixels, int channels, const int32_t *sources)
{
    if (channels == 3)
        for (i64 i = 0; i < pixels; i++) {
            i64 from = sources[i];
            const u8 *pixel = image + 3 * (from < 0 ? 0 : from);
            u8 keep = from < 0 ? 0 : 0xFF;
            out[3 * i] = pixel[0] & keep;
            out[3 * i + 1] = pixel[1] & keep;
            out[3 * i + 2] = pixel[2] & keep;
        }
    else
        for (i64 i = 0; i < pixels; i++) out[i] = sources[i] < 0 ? 0 : image[sources[i]];
}

static void contrast(const u8 *image, u8 *out, i64 pixels, int channels, float weight, float rest)
{
    u8 tables[3][256];
    i64 total = 0;
    if (channels == 3)
        for (i64 i = 0; i < pixels; i++) total += luma(image + 3 * i);
    else
        for (i64 i = 0; i < pixels; i++) total += image[i];
    float mean = (float)total / (float)pixels, shade = rest * mean;
    for (int level = 0; level < 256; level++) {
        float scaled = weight * level;
        tables[0][level] = tables[1][level] = tables[2][level] = cut(scaled + shade);
    }
    look_up(image, out, pixels, channels, tables);
}

static void autocontrast(const u8 *image, u8 *out, i64 pixels, int channels)
{
    u8 tables[3][256];
    for (int channel = 0; channel < channels; channel++) {
        u8 low = 255, high = 0;
        for (i64 i = channel; i < pixels * channels; i += channels) {
            low = image[i] < low ? image[i] : low;
            high = image[i] > high ? image[i] : high;
        }
        /* torch divides a number by a tensor by way of the reciprocal */
        float scale = low == high ? 1.0f : 1.0f / (float)(high - low) * 255.0f;
        float first = low == high ? 0.0f : (float)low;
        for (int level = 0; level < 256; level++) tables[channel][level] = cut(((float)level - first) * scale);
    }
    look_up(image, out, pixels, channels, tables);
}

static void equalize(const u8 *image, u8 *out, i64 pixels, int channels)
{
    u8 tables[3][256];
    int32_t counts[3][256] = {{0}};
    for (int channel = 0; channel < channels; channel++) {
        for (i64 i = channel; i < pixels * channels; i += channels) counts[channel][image[i]]++;
        int highest = 255;
        while (!counts[channel][highest]) highest--;
        i64 step = (pixels - counts[channel][highest]) / 255, below = 0;
        for (int level = 0; level < 256; level++) {
            i64 value = step ? (below + step / 2) / step : level;
            tables[channel][level] = value > 255 ? 255 : (u8)value;
            below += counts[channel][level];
        }
    }
    look_up(image, out, pixels, channels, tables);
}

static void color(const u8 *image, u8 *out, i64 pixels, float weight, float rest)
{
    for (i64 i = 0; i < pixels; i++, image += 3, out += 3) {
        float gray = rest * luma(image);
        for (int channel = 0; channel < 3; channel++) {
            float scaled = weight * image[channel];
            out[channel] = cut(scaled + gray);
        }
    }
}

static void sharpen(const u8 *image, u8 *out, i64 height, i64 width, int channels, float weight, float rest)
{
    const i64 line = width * channels;
    for (i64 y = 0; y < height; y++, image += line, out += line) {
        const int inner = y > 0 && y < height - 1; /* the border is not smoothed */
        const i64 begin = inner ? channels : line, end = inner ? line - channels : line;
        for (i64 x = 0; x < line; x = x + 1 == begin ? end : x + 1) {
            float kept = weight * image[x], blended = rest * image[x];
            out[x] = cut(kept + blended);
        }
        for (i64 x = begin; x < end; x++) {
            const u8 *at = image + x, *above = at - line, *below = at + line;
            int left = above[-channels] + at[-channels] + below[-channels];
            int right = above[channels] + at[channels] + below[channels];
            float sum = (float)(left + right + above[0] + 5 * at[0] + below[0]);
            float kept = weight * at[0], blended = rest * rintf(sum * (float)(1.0 / 13));
            out[x] = cut(kept + blended);
        }
    }
}

/* Crop the zero-padded image back to its size, and mirror it. */
static void piece(const u8 *image, u8 *out, i64 height, i64 width, int channels, i64 down, i64 across, int mirrored)
{
    i64 begin = across < 0 ? -across : 0, end = across > 0 ? width - across : width;
    begin = begin > width ? width : begin;
    end = end < begin ? begin : end;
    for (i64 y = 0; y < height; y++, out += width * channels) {
        if (y + down < 0 || y + down >= height || begin == end) {
            memset(out, 0, width * channels);
            continue;
        }
        const u8 *line = image + ((y + down) * width + across) * channels;
        const i64 before = mirrored ? width - end : begin, after = mirrored ? begin : width - end;
        memset(out, 0, before * channels);
        memset(out + (width - after) * channels, 0, after * channels);
        if (!mirrored)
            memcpy(out + begin * channels, line + begin * channels, (end - begin) * channels);
        else if (channels == 3)
            for (i64 x = begin; x < end; x++) {
                u8 *to = out + 3 * (width - 1 - x);
                to[0] = line[3 * x];
                to[1] = line[3 * x + 1];
                to[2] = line[3 * x + 2];
            }
        else
            for (i64 x = begin; x < end; x++) out[width - 1 - x] = line[x];
    }
}

enum { IDENTITY, WARP, TABLE, CONTRAST, AUTOCONTRAST, EQUALIZE, COLOR, SHARPEN };

/* Crop and mirror each image, then apply to it `rounds` operations, given by round and image.
 *
 * `argument` is the address of a WARP's source pixels or of a TABLE's entries; `weight` and `rest` are the shares
 * of a blend. `scratch` holds two images. */
void augment(const u8 *images, u8 *out, i64 count, i64 height, i64 width, int channels, const i64 *down,
             const i64 *across, const u8 *mirrored, int rounds, const int32_t *kinds, const uintptr_t *arguments,
             const float *weight, const float *rest, u8 *scratch)
{
    const i64 pixels = height * width, size = pixels * channels;
    for (i64 i = 0; i < count; i++, images += size, out += size) {
        u8 *spare[2] = {scratch, scratch + size};
        int last = -1; /* the last operation writes to `out` */
        for (int round = 0; round < rounds; round++)
            if (kinds[round * count + i] != IDENTITY) last = round;
        piece(images, last < 0 ? out : spare[0], height, width, channels, down[i], across[i], mirrored[i]);
        const u8 *from = spare[0];
        for (int round = 0; round <= last; round++) {
            const i64 at = round * count + i;
            if (kinds[at] == IDENTITY) continue;
            u8 *to = round == last ? out : from == spare[0] ? spare[1] : spare[0];
            switch (kinds[at]) {
            case WARP:
                warp(from, to, pixels, channels, (const int32_t *)arguments[at]);
                break;
            case TABLE: {
                u8 tables[3][256];
                for (int channel = 0; channel < 3; channel++)
                    memcpy(tables[channel], (const u8 *)arguments[at], 256);
                look_up(from, to, pixels, channels, tables);
                break;
            }
            case CONTRAST:
                contrast(from, to, pixels, channels, weight[at], rest[at]);
                break;
            case AUTOCONTRAST:
                autocontrast(from, to, pixels, channels);
                break;
            case EQUALIZE:
                equalize(from, to, pixels, channels);
                break;
            case COLOR:
                color(from, to, pixels, weight[at], rest[at]);
                break;
            case SHARPEN:
                sharpen(from, to, height, width, channels, weight[at], rest[at]);
                break;
            }
            from = to;
        }
    }
}

/* Normalise one image, value by value in memory order. Scale and shift repeat every `period` values. Inlined, so that
 * the compiler vectorises a loop for each constant period. */
static inline __attribute__((always_inline)) void numbers(const u8 *image, const u8 *mate, float *out, i64 size,
                                                          const int period, const float *scale, const float *shift,
                                                          float weight)
{
    const int nearer = weight < 0.5f; /* torch.lerp starts from the nearer end */
    const float share = nearer ? weight : weight - 1.0f;
    for (i64 at = 0; at < size; at += period)
        for (int i = 0; i < period; i++) {
            float end = fmaf(image[at + i], scale[i], shift[i]);
            if (weight != 1.0f) {
                float start = fmaf(mate[at + i], scale[i], shift[i]);
                end = fmaf(share, end - start, nearer ? start : end);
            }
            out[at + i] = end;
        }
}

/* Split interleaved pixels into three planes. */
static void apart(const float *restrict from, float *restrict to, i64 pixels)
{
    for (i64 at = 0; at < pixels; at++) {
        to[at] = from[3 * at];
        to[pixels + at] = from[3 * at + 1];
        to[2 * pixels + at] = from[3 * at + 2];
    }
}

/* Normalise bytes to floats, byte * scale + shift of the channel with one rounding, and mix each image with its
 * partner.
 *
 * `weight` is the share of the image itself; inside `box` (top, bottom, left, right) it is 0. Nothing is mixed if
 * `partner` is null. `planes`: write channel by channel (contiguous tensors) instead of pixel by pixel. */
void normalise(const u8 *images, float *out, i64 count, i64 height, i64 width, int channels, const float *scale,
               const float *shift, int planes, const i64 *partner, const float *weight, const i64 *box, float *scratch)
{
    enum { PERIOD = 24 };
    const i64 pixels = height * width, size = pixels * channels, whole = size / PERIOD * PERIOD;
    float scales[PERIOD], shifts[PERIOD];
    for (int i = 0; i < PERIOD; i++) {
        scales[i] = scale[i % channels];
        shifts[i] = shift[i % channels];
    }
    for (i64 i = 0; i < count; i++, out += size) {
        const u8 *image = images + i * size, *mate = partner ? images + partner[i] * size : image;
        const float ratio = partner ? weight[i] : 1.0f;
        float *to = planes && channels == 3 ? scratch : out;
        if (ratio == 1.0f)
            numbers(image, mate, to, whole, PERIOD, scales, shifts, 1.0f);
        else
            numbers(image, mate, to, whole, PERIOD, scales, shifts, ratio);
        for (i64 at = whole; at < size; at++)
            numbers(image + at, mate + at, to + at, 1, 1, scales + at % channels, shifts + at % channels, ratio);
        if (partner)
            for (i64 y = box[i]; y < box[count + i]; y++) {
                const i64 begin = (y * width + box[2 * count + i]) * channels;
                const i64 end = (y * width + box[3 * count + i]) * channels;
                for (i64 at = begin; at < end; at++)
                    to[at] = fmaf(mate[at], scales[at % channels], shifts[at % channels]);
            }
        if (to != out) apart(to, out, pixels);
    }
}
