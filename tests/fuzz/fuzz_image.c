/* Image files: decode, then every way to make an input of one. */
#include "fuzz.h"

#include "data/image_priv.h"

#define STB_IMAGE_WRITE_STATIC
#define STB_IMAGE_WRITE_IMPLEMENTATION
#pragma GCC diagnostic ignored "-Wunused-function"
/* its JPEG packer shifts bits out at the top */
#pragma clang attribute push(__attribute__((no_sanitize("undefined"))), apply_to = function)
#include <stb/stb_image_write.h>
#pragma clang attribute pop

static void make_seeds(const char *folder)
{
	static const char *const names[] = { "a.png", "a.jpg", "a.bmp", "a.tga", "g.png", "g.jpg" };
	unsigned char p[3 * 24 * 17];
	char path[4096];

	for (size_t i = 0; i < sizeof(p); i++)
		p[i] = (unsigned char)(i * 7 + i / 72 * 13);
	for (int i = 0; i < 6; i++) {
		int c = i < 4 ? 3 : 1;

		snprintf(path, sizeof(path), "%s/%s", folder, names[i]);
		if (strstr(path, ".png"))
			stbi_write_png(path, 24, 17, c, p, 24 * c);
		else if (strstr(path, ".jpg"))
			stbi_write_jpg(path, 24, 17, c, p, 80);
		else if (strstr(path, ".bmp"))
			stbi_write_bmp(path, 24, 17, c, p);
		else
			stbi_write_tga(path, 24, 17, c, p);
	}
	fuzz_seed(folder, "a.ppm", "P6\n2 2\n255\nabcdefghijkl", 23);
	fuzz_seed(folder, "a.pgm", "P5 # x\n2 2\n65535\nabcdefgh", 25);
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
	static struct image_arena a;
	static float out[3 * 24 * 24];
	static const struct dn_augment all = {
		.min_ratio = .5, .max_ratio = 2, .angle = 90, .aspect = 2, .hue = .5, .saturation = 3, .exposure = 3, .flip = true
	};
	struct dn_view v;

	if (!n || (!a.base && image_arena_init(&a, IMAGE_ARENA_ONCE)))
		return 0;
	for (int c = 1; c <= 3; c += 2) {
		struct dn_augment_draw d;

		if (image_arena_reset(&a))
			abort();
		if (image_decode_bytes(&a, p, n, "x", c, &v))
			continue;
		dn_image_letterbox(&v, out, 24, 17);
		dn_image_center_crop(&v, out, 11, 24);
		dn_augment_draw(&d, &all, n, p[0], p[n - 1], v.w, v.h, 24, 24);
		dn_augment_apply(&all, &d, &v, out, 24, 24);
	}
	return 0;
}
