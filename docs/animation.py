"""Make the README's animation of the workbench from its pictures: python docs/animation.py."""

from pathlib import Path

from PIL import Image, ImageOps

PICTURES = Path(__file__).parent / "img"
STEPS = ("survey", "plan", "query", "run", "undo")
WIDTH_PIXELS, STEP_MILLISECONDS = 900, 2_500


def main() -> None:
    """Write one frame per step, all as high as the highest picture, with each picture at the top."""
    pictures = [Image.open(PICTURES / f"workbench-{step}.png").convert("RGB") for step in STEPS]
    scaled = [
        picture.resize((WIDTH_PIXELS, round(picture.height * WIDTH_PIXELS / picture.width)))
        for picture in pictures
    ]
    size = WIDTH_PIXELS, max(picture.height for picture in scaled)
    first, *others = (ImageOps.pad(picture, size, color="white", centering=(0, 0)) for picture in scaled)
    first.save(
        PICTURES / "workbench.gif", save_all=True, append_images=others, duration=STEP_MILLISECONDS, loop=0
    )


if __name__ == "__main__":
    main()
