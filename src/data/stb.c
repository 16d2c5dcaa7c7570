/* The one file that compiles stb_image: its memory is an arena's, its assertions end the decoding, not us. */
#include "data/image_priv.h"

#include <setjmp.h>

/* stb's calls for memory carry no context, so the decoding that this thread is in stands here during the call. */
static _Thread_local struct image_arena *arena;

static void give_up(void)
{
	longjmp(arena->bail, 1);
}

#define STB_IMAGE_IMPLEMENTATION
#define STB_IMAGE_STATIC
#define STBI_NO_GIF
#define STBI_ONLY_JPEG
#define STBI_ONLY_PNG
#define STBI_ONLY_BMP
#define STBI_ONLY_TGA
#define STBI_NO_STDIO
#define STBI_NO_LINEAR
#define STBI_NO_HDR
#define STBI_MAX_DIMENSIONS DN_IMAGE_MAX_SIDE
#define STBI_MALLOC(n) image_arena_get(arena, n)
#define STBI_REALLOC(p, n) image_arena_resize(arena, p, n)
#define STBI_FREE(p) image_arena_put(arena, p)
#define STBI_ASSERT(x) ((x) ? (void)0 : give_up())

/* Chroma of half the size. Weights are stb's, 3/4 and 1/4 a side; halves are rounded as libjpeg does, which Darknet's usual build
 * decodes with: down and up in turns, where stb always rounds up. stb defines its functions with the names below and arguments,
 * which become other names; where it takes their address, it finds these. */
static unsigned char *half_height(unsigned char *out, unsigned char *near, unsigned char *far, int w, int hs)
{
	const int bias = near > far ? 1 : 2; /* rows of one plane: the upper of two has its neighbour above */

	(void)hs;
	for (int i = 0; i < w; i++)
		out[i] = (unsigned char)((3 * near[i] + far[i] + bias) >> 2);
	return out;
}

static unsigned char *half_width(unsigned char *out, unsigned char *near, unsigned char *far, int w, int hs)
{
	(void)far;
	(void)hs;
	for (int i = 1; i < w; i++) {
		out[2 * i - 1] = (unsigned char)((3 * near[i - 1] + near[i] + 2) >> 2);
		out[2 * i] = (unsigned char)((3 * near[i] + near[i - 1] + 1) >> 2);
	}
	out[0] = near[0];
	out[2 * w - 1] = near[w - 1];
	return out;
}

static unsigned char *half_both(unsigned char *out, unsigned char *near, unsigned char *far, int w, int hs)
{
	(void)hs;
	for (int i = 1; i < w; i++) {
		const int left = 3 * near[i - 1] + far[i - 1], here = 3 * near[i] + far[i];

		out[2 * i - 1] = (unsigned char)((3 * left + here + 7) >> 4);
		out[2 * i] = (unsigned char)((3 * here + left + 8) >> 4);
	}
	out[0] = (unsigned char)((4 * (3 * near[0] + far[0]) + 8) >> 4);
	out[2 * w - 1] = (unsigned char)((4 * (3 * near[w - 1] + far[w - 1]) + 7) >> 4);
	return out;
}

static unsigned char *(*const stbi__resample_row_v_2)(unsigned char *, unsigned char *, unsigned char *, int, int) = half_height;
static unsigned char *(*const stbi__resample_row_h_2)(unsigned char *, unsigned char *, unsigned char *, int, int) = half_width;
static unsigned char *(*const stbi__resample_row_hv_2)(unsigned char *, unsigned char *, unsigned char *, int, int) = half_both;
static unsigned char *(*const stbi__resample_row_hv_2_simd)(unsigned char *, unsigned char *, unsigned char *, int,
							    int) = half_both;
#define stbi__resample_row_v_2(o, n, f, w, h) stb_v_2(o, n, f, w, h)
#define stbi__resample_row_h_2(o, n, f, w, h) stb_h_2(o, n, f, w, h)
#define stbi__resample_row_hv_2(o, n, f, w, h) stb_hv_2(o, n, f, w, h)
#define stbi__resample_row_hv_2_simd(o, n, f, w, h) stb_hv_2_simd(o, n, f, w, h)

/* to the end of the file: its unused functions are counted there */
#pragma GCC diagnostic ignored "-Wunused-function"
#pragma GCC diagnostic ignored "-Wsign-compare"
#pragma GCC diagnostic ignored "-Wshadow"
#pragma GCC diagnostic ignored "-Wmissing-field-initializers"
#include <stb/stb_image.h>

const char *image_stb_info(struct image_arena *a, const unsigned char *p, size_t n, int *w, int *h, int *c)
{
	const char *why = NULL;

	arena = a;
	if (setjmp(a->bail))
		why = "the header contradicts itself";
	else if (!stbi_info_from_memory(p, (int)n, w, h, c))
		why = stbi_failure_reason();
	arena = NULL;
	return why;
}

const char *image_stb_decode(struct image_arena *a, const unsigned char *p, size_t n, int c, unsigned char **out, int *w, int *h)
{
	const char *why = NULL;
	int file_c;

	arena = a;
	if (setjmp(a->bail)) {
		why = "the contents contradict themselves";
	} else {
		*out = stbi_load_from_memory(p, (int)n, w, h, &file_c, c);
		if (!*out)
			why = stbi_failure_reason();
	}
	arena = NULL;
	return why;
}
