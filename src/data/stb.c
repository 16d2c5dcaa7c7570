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
