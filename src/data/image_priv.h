/* Decoding into memory that is used again and again. Private to the room. */
#ifndef DN_DATA_IMAGE_PRIV_H
#define DN_DATA_IMAGE_PRIV_H
#include <setjmp.h>
#include "data/image.h"

struct image_chunk;

/* Memory of one decoding after the other: blocks from the front, all given back at once. What does not fit goes
 * into chunks of their own, and the next decoding finds the whole as large as that. */
struct image_arena {
	char *base;
	size_t cap, used;
	size_t last; /* offset of the last block's header: it can grow and be given back */
	struct image_chunk *chunks;
	size_t chunk_bytes;
	bool no_end;  /* the file of this decoding had no end marker, but all its pixels */
	jmp_buf bail; /* where a decoder that finds itself in a state it excludes goes */
};

#define IMAGE_ARENA_ONCE ((size_t)256 << 10) /* first size for one file, and for many: not touched before it is used, */
#define IMAGE_ARENA_MANY ((size_t)32 << 20)  /* and enough for photographs of 4 million pixels */
int image_arena_init(struct image_arena *a, size_t bytes);
void image_arena_fini(struct image_arena *a); /* legal on a zeroed one */
int image_arena_reset(struct image_arena *a);
void *image_arena_get(struct image_arena *a, size_t bytes); /* NULL: no memory, no message */
void *image_arena_resize(struct image_arena *a, void *p, size_t bytes);
void image_arena_put(struct image_arena *a, void *p);

/* Size and channels that a file's header promises; NULL or why not. */
const char *image_stb_info(struct image_arena *a, const unsigned char *p, size_t n, int *w, int *h, int *c);
/* Pixels of @c channels by byte, in the arena; NULL or why not. */
const char *image_stb_decode(struct image_arena *a, const unsigned char *p, size_t n, int c, unsigned char **out, int *w, int *h);

bool image_is_png(const unsigned char *p, size_t n);
bool image_is_jpeg(const unsigned char *p, size_t n);
bool image_is_bmp(const unsigned char *p, size_t n);
bool image_is_pnm(const unsigned char *p, size_t n);
/* image_decode_pnm() - of what image_is_pnm() */
int image_decode_pnm(struct image_arena *a, const unsigned char *p, size_t n, const char *path, int64_t c, struct dn_view *out);

/* --- before the decoder: nothing in the file leads it astray, or makes it fill in what is not there --- */

int image_check_size(const char *path, int64_t w, int64_t h);
/* image_check_png(), image_check_bmp() - of what image_is_...(); *p and *n become those of a copy where the decoder would
 * misread the file */
int image_check_png(struct image_arena *a, const char *path, const unsigned char **p, size_t *n);
int image_check_bmp(struct image_arena *a, const char *path, const unsigned char **p, size_t *n);

struct jpeg_look {
	bool progressive;
	bool no_end; /* for image_decode_endless() */
};
int image_check_jpeg(const char *path, const unsigned char *p, size_t n, struct jpeg_look *out);
/* image_decode_endless() - a JPEG without its end marker; an error unless all its pixels are there */
int image_decode_endless(struct image_arena *a, const unsigned char *p, size_t n, const char *path, int c, unsigned char **out,
			 int *w, int *h);
/* image_check() - the @n bytes can hold @w x @h pixels */
int image_check(const char *path, const unsigned char *p, size_t n, int w, int h, const struct jpeg_look *jpeg);

/* --- */

#define IMAGE_NO_END "the JPEG has no end marker; all its pixels are there, so it is used"
#define IMAGE_NAME_BYTES 512
/* image_name() - the path in quotes, as messages name an image; after the list and line that it stands in, if there are */
void image_name(char out[IMAGE_NAME_BYTES], const char *path, const char *list, int64_t line);

/* A file as @c channels; the view is valid until the arena's next reset, which the call itself starts with. @name is for
 * messages. a->no_end tells of a JPEG that lacked its end marker. */
int image_decode(struct image_arena *a, const char *path, const char *name, int64_t c, struct dn_view *out);
int image_decode_bytes(struct image_arena *a, const unsigned char *p, size_t n, const char *name, int64_t c, struct dn_view *out);

#endif
